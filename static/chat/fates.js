/**
 * The list of messages that were broken: what happened to each, and what an operator can do about it.
 */
import {State} from "./breaker.js";
import {make, setText} from "./elements.js";

export class Fates {
    #list;
    #retries;
    #act;
    #rows = new Map();

    /**
     * @param list the <ol> that shows them
     * @param retries {retries, delay} that the session asked for
     * @param act called with a button that was pressed, what it is for, "redrive" or "discard", and the message
     */
    constructor(list, retries, act) {
        this.#list = list;
        this.#retries = retries;
        this.#act = act;
    }

    clear() {
        this.#rows.clear();
        this.#list.replaceChildren();
    }

    /**
     * Shows these, the oldest first: the list grows at its end, so that nothing moves. Each keeps its element and so the focus.
     * @param isOperator whether somebody may act
     * @param name that of the session
     */
    show(fates, isOperator, name) {
        const rows = fates.map((fate) => this.#rowOf(fate, isOperator, name));
        const kept = new Set(fates.map(({id}) => id));
        for (const [id, row] of this.#rows) {
            if (!kept.has(id)) {
                row.element.remove();
                this.#rows.delete(id);
            }
        }
        rows.forEach((row, at) => {
            const there = this.#list.children[at];
            if (there !== row.element) {
                this.#list.insertBefore(row.element, there ?? null);
            }
        });
    }

    #rowOf(fate, isOperator, name) {
        if (!this.#rows.has(fate.id)) {
            this.#rows.set(fate.id, this.#newRow(fate));
        }
        const row = this.#rows.get(fate.id);
        setText(row.code, fate.code);
        setText(row.count, `delivery ${fate.deliveries}`);
        setText(row.state, this.#sentence(fate));
        row.element.dataset.state = fate.state;
        row.actions.hidden = fate.letter === null || fate.state !== State.DEAD || !isOperator;
        setText(row.redrive, isFor(fate, name) ? "Send again" : "Send to the room");
        row.redrive.ariaLabel = `${row.redrive.textContent}: ${fate.text}`;
        return row;
    }

    #newRow(fate) {
        const row = {
            element: make("li"),
            code: make("code"),
            count: make("span", "count"),
            state: make("p"),
            actions: make("p", "actions"),
            redrive: this.#button("redrive", fate),
            discard: this.#button("discard", fate),
        };
        setText(row.discard, "Discard");
        row.discard.ariaLabel = `Discard: ${fate.text}`;
        row.actions.append(row.redrive, row.discard);
        row.element.append(make("b", "what", fate.text), row.code, row.count, row.state, row.actions);
        return row;
    }

    #button(what, fate) {
        const button = make("button");
        button.type = "button";
        button.addEventListener("click", () => this.#act(button, what, fate));
        return button;
    }

    #sentence({state, letter, deliveries}) {
        const {retries, delay} = this.#retries;
        switch (state) {
            case State.HELD:
                return "On hold, first in the queue.";
            case State.AGAIN:
                return `The server sends it again in ${delay / 1000} s. After ${retries + 1} failures in a row, it ends the session.`;
            case State.TAKEN:
                return `Acknowledged at delivery ${deliveries}.`;
            case State.REDRIVEN:
                return "Sent again by an operator.";
            case State.DISCARDED:
                return "Discarded by an operator.";
            case State.GONE:
                return "No longer a dead letter: an operator has dealt with it.";
        }
        return letter === null ? "A dead letter. Operators can see it." : `Dead letter ${letter.id}: “${letter.reason}”.`;
    }
}

/** Whether the letter of this message is for the session of this name. One that was given up gets nothing any more. */
export function isFor(fate, name) {
    return fate.letter === null || fate.letter.receiver.endsWith(`/${name}`);
}
