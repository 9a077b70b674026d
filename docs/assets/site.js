// Names for what the theme's own script adds to a page, so that readers that listen to it can tell the parts apart.
function name() {
    document.querySelectorAll("nav.md-code__nav:not([aria-label])").forEach((nav, at) =>
        nav.setAttribute("aria-label", `Code block ${at + 1}`));
    document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach(part => { part.tabIndex = 0; });
}

new MutationObserver(name).observe(document.body, {childList: true, subtree: true});
name();
