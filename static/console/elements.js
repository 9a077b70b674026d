/**
 * Elements of the page. What others sent goes into texts and attributes only, never into markup.
 */

import {stringify} from "./exact_numbers.js";
import {things, zoned} from "./format.js";

/** Makes an element: `h("a", {href: "#/", class: "x", onclick: f}, "text", child)`. Empty children are left out. */
export function h(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
        if (name.startsWith("on")) {
            element.addEventListener(name.slice(2), value);
        } else if (value === true) {
            element.setAttribute(name, "");
        } else if (value !== false && value !== null && value !== undefined) {
            element.setAttribute(name, value);
        }
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return element;
}

/** Rows of a list on a telephone, where each takes a good part of the screen. */
const PHONE_ROWS = 10;

/** Whether the window is as narrow as that of a telephone. */
export function isNarrow() {
    return matchMedia("(max-width: 45rem)").matches;
}

/** How many rows a page of a list has: so many where there is room, ten on a telephone. */
export function pageSize(usual) {
    return isNarrow() ? Math.min(PHONE_ROWS, usual) : usual;
}

/** What the operator may have scrolled within a part of the page. */
const SCROLLED = ".scroll, pre, .data, .names";

/** What tells an element of one state of the page from others, and finds its successor in the next one. A summary has ages, so its key does. */
function trait(element) {
    const text = element.getAttribute("href") ? "" : element.parentElement.dataset.key ?? element.textContent;
    return [element.tagName, element.getAttribute("href"), element.getAttribute("aria-label"), text].join();
}

/**
 * Shows these children in place of those that are there. The link or button that had the focus keeps it, scrolled parts stay
 * scrolled, and details with a key stay open. If a link or box is gone, the focus goes to the one in its place, but never to
 * another button.
 */
export function swap(element, ...children) {
    const active = element.contains(document.activeElement) && document.activeElement !== element ? document.activeElement : null;
    const wanted = active && trait(active);
    const alike = (root) => [...root.querySelectorAll("a, button, input, select, summary")].filter((each) => trait(each) === wanted);
    const place = active ? alike(element).indexOf(active) : 0;
    const kin = (root) => active.tagName === "BUTTON" ? [] : [...root.querySelectorAll(active.tagName)];
    const among = active ? kin(element).indexOf(active) : 0;
    const scrolled = [...element.querySelectorAll(SCROLLED)].map(({scrollLeft, scrollTop}) => [scrollLeft, scrollTop]);
    const opened = new Set([...element.querySelectorAll("details[open][data-key]")].map(({dataset: {key}}) => key));
    element.replaceChildren(...children);
    for (const details of opened.size ? element.querySelectorAll("details[data-key]") : []) {
        details.open = opened.has(details.dataset.key);
    }
    if (scrolled.some(([left, top]) => left || top)) {
        [...element.querySelectorAll(SCROLLED)].slice(0, scrolled.length).forEach((each, index) => {
            [each.scrollLeft, each.scrollTop] = scrolled[index];
        });
    }
    if (active && !active.isConnected) {
        const next = alike(element);
        (next[place] ?? next.at(-1) ?? kin(element)[among] ?? kin(element).at(-1))?.focus({preventScroll: true});
    }
}

/** A table with these headings and rows of cells; a cell is a text, an element, or a list of them. A heading with `href` leads to the list sorted by it. */
export function table(caption, headings, rows, empty = "Nothing here.") {
    if (rows.length === 0) {
        return h("p", {class: "hint"}, empty);
    }
    const head = h("tr", {}, headings.map((heading) => h("th", {scope: "col", class: heading.class, "aria-sort": heading.order},
        heading.href ? h("a", {href: heading.href}, heading.text) : heading.element ?? heading.text ?? heading)));
    // The heading stands beside each cell on a narrow window.
    const body = rows.map((row) => h("tr", {}, row.map((cell, index) =>
        h("td", {"data-label": headings[index].text ?? headings[index], class: headings[index].class}, cell))));
    return h("div", {class: "scroll"}, h("table", {}, h("caption", {class: "unseen"}, caption), h("thead", {}, head), h("tbody", {}, body)));
}

/** A name of several words, which breaks between them rather than within one. */
export function parts(name, separator) {
    return h("span", {class: "parts"}, name.split(separator).flatMap((word, index) => index === 0 ? [word] : [separator, h("wbr"), word]));
}

/** A text whose codes, such as user.update.error, stay on one line as long as they fit on one. */
export function coded(text) {
    return h("span", {}, text.split(/(\b[a-z]\w*(?:\.\w+)+\b[:;,]?)/).map((part, index) => index % 2 ? h("span", {class: "whole"}, parts(part, ".")) : part));
}

/** A channel as a link to its topic, a pattern as one to its topics. */
export function topicLink(channel) {
    const place = channel.includes("*") ? `?pattern=${encodeURIComponent(channel)}` : pathOf(channel);
    return h("a", {href: `#/topics${place}`}, parts(channel, "/"));
}

/** A receiver as a link to its view; a subject, which has none, as a text. */
export function receiverLink(name) {
    return /^client\/[^/]+\/.+/.test(name) ? h("a", {href: `#/receivers/${pathOf(name)}`}, parts(name, "/")) : name;
}

/** A name with its slashes, as a part of an address. */
export function pathOf(name) {
    return name.split("/").map(encodeURIComponent).join("/");
}

/** What a publisher said, on few lines of a table. */
export function data(value) {
    return h("code", {class: "data"}, stringify(value));
}

/** What a publisher said, each with its heading; what is empty is left out. */
export function sections(pairs) {
    return pairs.filter(([, value]) => value !== null && value !== undefined && Object.keys(Object(value)).length + (typeof value !== "object") > 0)
        .map(([title, value]) => h("section", {class: "card"}, h("h2", {}, title), h("pre", {}, stringify(value, 2))));
}

/** A list of names and values. */
export function facts(pairs) {
    return h("dl", {class: "facts"}, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
        .flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/**
 * A form of texts that filter a list: `fields` have name, hint and type of each. Others stand beside them. On a telephone, where it
 * would push the list off the screen, it is folded: `filtered` says what is set.
 */
export function filters(fields, asked, go, ...others) {
    // Not by their `name`: one that is called `contains` would hide the method of the form.
    const inputs = fields.map(([name, hint, type = "text"]) => h("input", {type, "data-filter": name, value: asked[name] ?? "", placeholder: hint, "aria-label": hint}));
    const form = h("form", {class: "filters", role: "search", onsubmit: (event) => {
        event.preventDefault();
        go({...Object.fromEntries(inputs.map(({dataset: {filter}, value}) => [filter, filter === "since" ? zoned(value.trim()) : value.trim()])), after: ""});
    }}, inputs, others, h("button", {}, "Filter"));
    return h("details", {class: "folded", open: !isNarrow()}, h("summary", {}, others.length ? "Filter and sort" : "Filter"), form);
}

/** By what a list is filtered, in words, also on paper; and a link that shows all again. `pairs` have a name and a value; empty ones are left out. */
export function filtered(pairs, href) {
    const set = pairs.filter(([, value]) => value);
    return set.length ? h("p", {class: "hint filtered"}, "Only: ", set.map(([name, value], index) => [index ? ", " : "", `${name} `, h("strong", {}, value)]), ". ", h("a", {href}, "Clear all filters")) : null;
}

/** A choice that changes the query of the address at once: `options` are pairs of value and text. */
export function select(name, label, options, chosen, go) {
    return h("label", {}, `${label} `, h("select", {onchange: (event) => go({[name]: event.target.value, after: ""})},
        options.map(([value, text]) => h("option", {value, selected: value === chosen}, text))));
}

/** The buttons to the first and the next page of a list whose cursor the address has as `after`. */
export function pager({after}, next, go, ...more) {
    return h("p", {class: "actions"},
        after ? h("button", {type: "button", onclick: () => go({after: ""})}, "First page") : null,
        next ? h("button", {type: "button", onclick: () => go({after: next})}, "Next page") : null, more);
}

/** Which answers of other nodes `what` is missing from; empty if all have answered. */
export function missing({unreached = 0, failed = 0}, what) {
    const texts = [[unreached - failed, "did not answer"], [failed, "failed, and the log says why"]]
        .filter(([number]) => number).map(([number, text]) => `${things(number, "node")} ${text}`);
    return texts.length ? h("p", {class: "trouble"}, `${texts.join("; ")}: ${what}.`) : "";
}

/**
 * What came of an action, `output`, with a button that takes it away. On a telephone it stands over the end of the screen, where the
 * operator is: the button that was pressed may be far away by then. What is closed before the end shows no more progress (`closed`), only
 * what came of it.
 */
export function result(output) {
    return h("div", {class: "result"}, output, h("button", {type: "button", class: "plain", "aria-label": "Close", onclick: () => close(output)}, "✕"));
}

function close(output) {
    output.replaceChildren();
    output.classList.add("closed");
}

/** An outcome whose view is no longer there stands above the one that is, until the operator closes it. */
export function keep(output) {
    if (!output.isConnected) {
        document.querySelector("#late").append(output.parentElement);
    }
}

let hints = 0;

/** A button with a short line about what it does. */
export function described(button, text) {
    const hint = h("span", {class: "hint", id: `does-${hints += 1}`}, text);
    button.setAttribute("aria-describedby", hint.id);
    return h("span", {class: "act"}, button, hint);
}

/** Sets a text if it is another one: what is read aloud is read once. */
export function setText(element, text) {
    if (element.textContent !== text) {
        element.textContent = text;
    }
}

/** Says a sentence to people who cannot see the page change. */
export function say(text) {
    document.querySelector("#said").textContent = text;
}
