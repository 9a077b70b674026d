/**
 * Numbers beside the names of views in the navigation: what waits there for an operator, by the newest overview.
 */

import {h} from "./elements.js";
import {count, figure} from "./format.js";

/** By the address of a view: each number, the words after it, whether they are seen, and where it leads. */
const BADGES = {
    "#/receivers": ({sessions: {conditions}, queues = {}}) => ["on hold", "full"].map((word) =>
        [(conditions[word] ?? 0) + (queues[word] ?? 0), word, true, `#/receivers?condition=${encodeURIComponent(word)}`]),
    "#/dead-letters": ({store: {letters}}) => [[letters, letters === 1 ? "dead letter" : "dead letters", false, "#/dead-letters"]],
};

/** Shows what an overview says, beside the links of the views within `nav`. What is unknown or none has no badge. */
export function showBadges(nav, told) {
    for (const [address, numbers] of Object.entries(BADGES)) {
        const badges = numbers(told).filter(([number]) => number).map(([number, words, areSeen, href]) =>
            h("a", {class: "badge", href, "data-of": address, title: `${count(number)} ${words}`}, figure(number), h("span", {class: areSeen ? "" : "unseen"}, ` ${words}`)));
        const old = [...nav.querySelectorAll(`.badge[data-of="${address}"]`)];
        if (old.map((each) => each.title).join() !== badges.map((each) => each.title).join()) { // one that has the focus keeps it
            old.forEach((each) => each.remove());
            nav.querySelector(`a[href="${address}"]:not(.badge)`)?.after(...badges);
        }
    }
}
