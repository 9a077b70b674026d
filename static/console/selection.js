/**
 * A choice of rows in a table: each by its box, a range with Shift, a page, or all that match. Nothing is chosen at first.
 */

import {h, setText} from "./elements.js";
import {capital, count, things} from "./format.js";

/** A box that a finger meets: its label is larger than itself. */
function large(box) {
    return h("label", {class: "box"}, box);
}

export class Selection {
    #chosen = new Map();
    #order = [];
    #last = null;
    #isAll = false;
    #total = null;
    #changed;
    #thing;
    #boxes = new Map();
    #head = null;

    /** `thing` is what a row is: "dead letter". `changed` is called when the choice is another one. */
    constructor(thing, changed) {
        this.#thing = thing;
        this.#changed = changed;
        this.text = h("span", {class: "hint", role: "status"});
        this.all = h("button", {type: "button", class: "plain", onclick: () => this.#choose(() => { this.#isAll = true; })});
        this.none = h("button", {type: "button", class: "plain", onclick: () => this.clear()}, "Select none");
        this.element = h("p", {class: "chosen"}, this.text, " ", this.all, " ", this.none);
        this.#tell();
    }

    /** Whether all that match are chosen, rather than some rows. */
    get isAll() {
        return this.#isAll;
    }

    /** How many are chosen; null for all that match while their number is not known. */
    get size() {
        return this.#isAll ? this.#total : this.#chosen.size;
    }

    get isEmpty() {
        return !this.#isAll && this.#chosen.size === 0;
    }

    /** The ids of the chosen rows. */
    get ids() {
        return [...this.#chosen.keys()];
    }

    /** The chosen rows; of all that match those that are on screen. */
    get rows() {
        return this.#isAll ? this.#order.map(([, row]) => row) : [...this.#chosen.values()];
    }

    clear() {
        this.#choose(() => {
            this.#chosen.clear();
            this.#isAll = false;
        });
    }

    /** How many match in all; null if that is not known. */
    set total(number) {
        this.#total = number;
        this.#tell();
    }

    /** What the page has: pairs of id and row, in their order. */
    show(pairs) {
        this.#order = pairs;
        this.#boxes.clear();
        for (const [id, row] of pairs) {
            if (this.#chosen.has(id)) {
                this.#chosen.set(id, row);
            }
        }
        this.#head = h("input", {type: "checkbox", "aria-label": "Select this page", onclick: (event) => this.#choose(() => {
            this.#isAll = false;
            for (const [id, row] of this.#order) {
                this.#set(id, row, event.target.checked);
            }
        })});
        const boxes = pairs.map(([id, row]) => this.#box(id, row));
        this.#tell();
        return {head: large(this.#head), boxes};
    }

    #box(id, row) {
        const box = h("input", {type: "checkbox", "aria-label": `Select ${id}`, onclick: (event) => this.#choose(() => {
            if (this.#isAll) { // all but this one: of those that are on screen
                this.#isAll = false;
                this.#order.forEach(([each, its]) => this.#set(each, its, true));
            }
            const here = this.#order.findIndex(([each]) => each === id);
            const from = event.shiftKey ? this.#order.findIndex(([each]) => each === this.#last) : here;
            const [low, high] = [Math.min(here, from < 0 ? here : from), Math.max(here, from)];
            this.#order.slice(low, high + 1).forEach(([each, its]) => this.#set(each, its, event.target.checked));
            this.#last = id;
        })});
        this.#boxes.set(id, box);
        return large(box);
    }

    #set(id, row, isChosen) {
        if (isChosen) {
            this.#chosen.set(id, row);
        } else {
            this.#chosen.delete(id);
        }
    }

    #choose(change) {
        change();
        this.#tell();
        this.#changed();
    }

    #tell() {
        for (const [id, box] of this.#boxes) {
            box.checked = this.#isAll || this.#chosen.has(id);
        }
        if (this.#head !== null) {
            const here = this.#order.filter(([id]) => this.#isAll || this.#chosen.has(id)).length;
            this.#head.checked = here > 0 && here === this.#order.length;
            this.#head.indeterminate = here > 0 && here < this.#order.length;
        }
        const number = this.#total === null ? "" : ` ${count(this.#total)}`;
        const all = this.#total === 1 ? "the one that matches" : `all${number} that match`;
        setText(this.text, this.#isAll ? `${capital(all)} ${this.#total === 1 ? "is" : "are"} selected.`
            : this.#chosen.size ? `${things(this.#chosen.size, this.#thing)} selected.` : "Nothing is selected.");
        this.all.textContent = `Select ${all}`;
        this.all.hidden = this.#isAll || this.#order.length === 0;
        this.none.hidden = this.isEmpty;
    }
}
