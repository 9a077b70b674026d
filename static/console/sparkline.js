/**
 * Rates of the last ten minutes as small charts within a table or a list of facts.
 */

import {get} from "./api.js";
import {h} from "./elements.js";
import {figure} from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [80, 18];

/** A line of these values, of which some may be null, and the last one in words. */
export function sparkline(values) {
    const last = values?.at(-1) ?? 0;
    const most = Math.max(...(values ?? [0]), 0.001);
    const text = `${figure(last)}/s`;
    if (!values) {
        return h("span", {class: "rate hint"}, text);
    }
    const picture = document.createElementNS(SVG, "svg");
    const label = `${text} now, at most ${figure(most)}/s in the last ten minutes`;
    for (const [name, value] of Object.entries({viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, class: "spark", role: "img", "aria-label": label})) {
        picture.setAttribute(name, value);
    }
    const step = WIDTH / (values.length - 1);
    const points = values.flatMap((value, at) => value === null ? [] : [`${(at * step).toFixed(1)},${(HEIGHT - 1.5 - value / most * (HEIGHT - 3)).toFixed(1)}`]);
    const line = document.createElementNS(SVG, "polyline");
    line.setAttribute("points", points.join(" "));
    picture.append(line);
    return h("span", {class: "rate", title: label}, picture, h("span", {class: "number"}, text));
}

/** The rates by name: of a "receiver", a "group" or a "topic". None where there is no store, or it cannot be read. */
export async function ratesBy(by) {
    return get("/rates", {by}).then(({rates}) => rates, () => null);
}

/** The headings and rows of a table with a column of rates, of which each name has one. */
export function withRates(headings, rows, names, rates) {
    return rates === null ? [headings, rows]
        : [[...headings, {text: "Rate", class: "rates"}], rows.map((row, at) => [...row, sparkline(rates[names[at]])])];
}
