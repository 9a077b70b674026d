/**
 * Numbers, times and sizes as people read them. Times are in the zone of the browser, which the foot of the page names.
 */

export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", {maximumSignificantDigits: 3, notation: "compact"});
const moment = new Intl.DateTimeFormat("sv-SE", {dateStyle: "short", timeStyle: "medium"});
const UNITS = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]];

export function count(number) {
    return whole.format(number);
}

/** Three digits; a dash for what is not known. */
export function figure(number, unit = "") {
    return number === null || number === undefined || Number.isNaN(number) ? "–" : `${short.format(number)}${unit}`;
}

export function things(number, thing, more = `${thing}s`) {
    return `${count(number)} ${number === 1 ? thing : more}`;
}

/** The text with a capital at its beginning; one that begins with a code, a name or a channel stays as it is. */
export function capital(text) {
    return /^[a-z]+[ ,;]/.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
}

/** What the server says of a failure, as a sentence: "there is no job 1-1" has neither capital nor full stop. */
export function sentence(text) {
    return text && text[0].toUpperCase() + text.slice(1) + (/[.!?…]$/.test(text) ? "" : ".");
}

export function bytes(number) {
    const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let power = 0;
    while (number >= 1024 && power < units.length - 1) {
        number /= 1024;
        power += 1;
    }
    return `${power === 0 ? number : number.toPrecision(3)} ${units[power]}`;
}

/** 2026-11-22 04:31:07 */
export function time(milliseconds) {
    return moment.format(new Date(milliseconds));
}

/** 04:31 */
export function clock(milliseconds) {
    return time(milliseconds).slice(11, 16);
}

/** A date that an operator writes as this page shows it, with the zone of this page: the server takes one without for UTC. */
export function zoned(text) {
    const [, date, clock] = /^([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?))?$/.exec(text) ?? [];
    const minutes = date && -new Date(`${date}T${clock ?? "00:00"}`).getTimezoneOffset();
    if (date === undefined || Number.isNaN(minutes)) {
        return text; // an age such as 2h, or what the server has to refuse
    }
    const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60].map((each) => String(each).padStart(2, "0"));
    return `${date}T${clock ?? "00:00"}${minutes < 0 ? "-" : "+"}${hours}:${rest}`;
}

/** 3 min; 2 h 5 min */
export function span(milliseconds) {
    const first = UNITS.findIndex(([, size]) => milliseconds >= size);
    if (first < 0) {
        return `${Math.max(0, Math.round(milliseconds))} ms`;
    }
    const parts = [];
    let rest = milliseconds;
    for (const [unit, size] of UNITS.slice(first, first + 2)) {
        if (rest >= size) {
            parts.push(`${Math.floor(rest / size)} ${unit}`);
        }
        rest %= size;
    }
    return parts.join(" ");
}

/** From here on the server tells of a time no more than that it is at least so long. */
const AT_LEAST_MS = 60_000;

/** How long something took: 3.2 ms; 1.5 s; ≥ 5 min; a dash for what is not known. */
export function took(milliseconds) {
    if (milliseconds >= AT_LEAST_MS) {
        return `≥ ${span(milliseconds)}`;
    }
    return milliseconds >= 1000 ? figure(milliseconds / 1000, " s") : figure(milliseconds, milliseconds === null ? "" : " ms");
}

/** 2026-11-22 04:31:07, 3 min ago */
export function ago(milliseconds) {
    return `${time(milliseconds)}, ${span(Date.now() - milliseconds)} ago`;
}

/** Which session published a message. */
export function senderText({sender}) {
    return sender || "the server, or a back end";
}

/** When a message was published, of its id, which is microseconds since 1970. */
export function millisecondsOf(id) {
    return Number(id) / 1000;
}
