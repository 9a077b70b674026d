/**
 * The samples of the last hour, gathered from answers that each have those since the one before; and what follows from them.
 */

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
/** Rates that are shown as what happened in the minute before: a burst of some seconds is no rate of a minute. */
const IN_A_MINUTE = ["deadLetters", "redelivered", "dropped"];

export class Samples {
    constructor() {
        this.columns = null;
    }

    get newest() {
        return Math.floor(this.columns?.at.at(-1) ?? 0);
    }

    add(more, now, everyMs) {
        this.columns ??= Object.fromEntries(Object.keys(more).map((name) => [name, []]));
        const first = this.columns.at.findIndex((at) => at >= now - HOUR_MS);
        const last = this.newest;
        const fresh = more.at.map((at) => at > last + 1);
        for (const [name, values] of Object.entries(more)) {
            this.columns[name] = [...(this.columns[name] ?? []).slice(Math.max(first, 0)), ...values.filter((_, index) => fresh[index])];
        }
        this.#derive(everyMs);
    }

    last(name) {
        return this.columns[name].at(-1);
    }

    #derive(everyMs) {
        const {at, waiting, queued} = this.columns;
        this.columns.backlog = waiting.map((each, index) => isKnown(each) ? each + (queued?.[index] ?? 0) : null);
        for (const name of IN_A_MINUTE) {
            this.columns[`${name}InMinute`] = sums(at, this.columns[name], everyMs);
        }
    }
}

function isKnown(value) {
    return value !== null && value !== undefined && !Number.isNaN(value);
}

/** How many there were in the minute before each sample, of their rates a second. */
function sums(at, rates, everyMs) {
    let from = 0;
    let sum = 0;
    const counts = rates.map((rate, index) => (isKnown(rate) ? rate : 0) * (index === 0 ? everyMs : Math.min(at[index] - at[index - 1], 2 * everyMs)) / 1000);
    return at.map((moment, index) => {
        sum += counts[index];
        while (at[from] <= moment - MINUTE_MS) {
            sum -= counts[from];
            from += 1;
        }
        return isKnown(rates[index]) ? Math.max(Math.round(sum), 0) : null;
    });
}
