# find_package(zeropoint) gives the target zeropoint::zeropoint.
include("${CMAKE_CURRENT_LIST_DIR}/zeropointTargets.cmake")
