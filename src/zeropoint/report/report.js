// report.html#sort=sqnr or #sort=sqnr:ascending opens the page with its layers in that order.
const asked = /^#sort=([a-z_]+)(?::(ascending|descending))?$/.exec(location.hash);
const wanted = asked && document.querySelector("#layers th[data-key=" + asked[1] + "]");
if (wanted) {
  if (asked[2]) sortBy(wanted, asked[2]); else wanted.firstElementChild.click();
}
