/**
 * Numbers beside the names of views in the navigation: what waits there for an operator, by the newest overview.
 */

import {h} from "./elements.js";
import {count, figure} from "./format.js";

/** The findings about receivers that need somebody soon, and what is said of so many. A receiver is in one finding. */
const IN_TROUBLE = {held: "on hold", "queue-full": "full", "token-expired": "with an expired token", rejecting: "rejecting everything", rejects: "rejecting messages"};

/** By the address of a view: the number, the words after it, whether they are seen, and what the number is of. */
const BADGES = {
    "#/receivers": ({findings}) => {
        const found = findings.filter(({key}) => key in IN_TROUBLE);
        return [found.reduce((sum, each) => sum + each.count, 0), "in trouble", true, found.map((each) => `${count(each.count)} ${IN_TROUBLE[each.key]}`).join(", ")];
    },
    "#/dead-letters": ({store: {letters}}) => [letters, letters === 1 ? "dead letter" : "dead letters", false],
};

/** Shows what an overview says, beside the links of the views within `nav`. What is unknown or none has no badge. */
export function showBadges(nav, told) {
    for (const [address, numberOf] of Object.entries(BADGES)) {
        const [number, words, areSeen, all] = numberOf(told);
        const badge = number ? h("a", {class: "badge", href: address, "data-of": address, title: all ?? `${count(number)} ${words}`}, figure(number), h("span", {class: areSeen ? "" : "unseen"}, ` ${words}`)) : null;
        const old = nav.querySelector(`.badge[data-of="${address}"]`);
        if (old?.title !== badge?.title) { // one that has the focus keeps it
            old?.remove();
            nav.querySelector(`a[href="${address}"]:not(.badge)`)?.after(...badge ? [badge] : []);
        }
    }
}
