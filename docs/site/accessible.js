// What the theme leaves without a name, or out of reach of the keyboard; it adds some of it late.
function mend() {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search")
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex]), pre > code:not([tabindex])"))
    wide.tabIndex = 0
}
mend()
new MutationObserver(mend).observe(document.body, {childList: true, subtree: true})
