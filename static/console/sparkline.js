/**
 * Rates of the last ten minutes as small charts within a table or a list of facts.
 */

import {get} from "./api.js";
import {h} from "./elements.js";
import {figure} from "./format.js";

/** The size in pixels of the style sheet, and how many pixels of the picture each of those has. */
const [WIDTH, HEIGHT, SHARP] = [80, 18, 2];

/** The rates of the API are those of a second. */
const MINUTE = 60;

/** A line of these values, of which some may be null, and the last one in words. */
export function sparkline(values) {
    const last = values?.at(-1) ?? 0;
    const most = Math.max(...(values ?? [0]), 0.001);
    const text = `${figure(last * MINUTE)} a minute`;
    if (!values) {
        return h("span", {class: "rate hint"}, text);
    }
    const label = `${text} now, at most ${figure(most * MINUTE)} in the last ten minutes`;
    const picture = h("canvas", {width: WIDTH * SHARP, height: HEIGHT * SHARP, class: "spark", role: "img", "aria-label": label});
    draw(picture.getContext("2d"), values, most);
    return h("span", {class: "rate", title: label}, picture, h("span", {class: "number"}, text));
}

/** A line through the values, the largest of which is `most`. */
function draw(context, values, most) {
    const step = (WIDTH - 2) / (values.length - 1);
    context.scale(SHARP, SHARP);
    context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--thread");
    context.lineWidth = 1.5;
    context.lineJoin = "round";
    context.beginPath();
    values.forEach((value, at) => {
        if (value !== null) {
            context.lineTo(1 + at * step, HEIGHT - 1.5 - value / most * (HEIGHT - 3));
        }
    });
    context.stroke();
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
