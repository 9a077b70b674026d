/**
 * Numbers beside the names of views in the navigation: how much there needs an operator, by the newest overview.
 */

import {h} from "./elements.js";
import {count, figure} from "./format.js";

/** By the address of a view: the number, the words after it, whether they are seen, and what the number is of. */
const BADGES = {
    "#/receivers": ({findings}) => {
        const found = findings.filter(({receivers}) => receivers?.length); // a receiver is in one finding
        return [found.reduce((sum, each) => sum + each.count, 0), "in trouble", true, found.map(({title}) => title).join("; ")];
    },
    "#/dead-letters": ({store: {letters}}) => [letters, letters === 1 ? "dead letter" : "dead letters", false],
};

/** Shows what an overview says, beside the links of the views within `nav`. What is unknown or none has no badge. */
export function showBadges(nav, told) {
    for (const [address, numberOf] of Object.entries(BADGES)) {
        const [number, words, areSeen, all] = numberOf(told);
        const badge = number ? h("a", {class: "badge", href: address, "data-of": address, title: all ?? `${count(number)} ${words}`}, figure(number), h("span", {class: areSeen ? "" : "unseen"}, ` ${words}`)) : null;
        const old = nav.querySelector(`.badge[data-of="${address}"]`);
        if (old?.title !== badge?.title) {
            const hadFocus = old !== null && old === document.activeElement;
            old?.remove();
            nav.querySelector(`a[href="${address}"]:not(.badge)`)?.after(...badge ? [badge] : []);
            if (hadFocus) {
                badge?.focus({preventScroll: true});
            }
        }
    }
}
