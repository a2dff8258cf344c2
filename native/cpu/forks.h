// fork(): a child has the caller's thread only, and what the parent's others held for ever. Systems without it have
// none.
#pragma once

namespace zeropoint {

// How many forks lie between the first process with this library and this one. What a thread of the parent was doing
// is not going on in the child.
int count_of_forks();
// Called in every forked child from now on.
void in_forked_children(void (*call)());

}  // namespace zeropoint
