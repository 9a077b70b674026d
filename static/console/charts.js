/**
 * Charts of the last hour, by uPlot. Without it the page shows its figures all the same.
 */

import {h} from "./elements.js";
import {figure} from "./format.js";

const plots = import("./uPlot.esm.js").then((module) => module.default, () => null);
const COLOURS = ["--thread", "--wool", "--good", "--warn"];
const HEIGHT = 170;
/** What a chart shows at least, in seconds: a server that has just begun has one sample. */
const LEAST_S = 300;
const sync = "crewel";

const ofDay = new Intl.DateTimeFormat("en-GB", {timeStyle: "short"});
const toSecond = new Intl.DateTimeFormat("en-GB", {timeStyle: "medium"});

/** Times of day for these seconds since 1970. */
function clock(plot, seconds) {
    const format = seconds.length > 1 && seconds[1] - seconds[0] < 60 ? toSecond : ofDay;
    return seconds.map((each) => format.format(each * 1000));
}

/** The span of time on the axis. uPlot makes a day of a single sample. */
function times(plot, low) {
    const last = plot.data[0].at(-1) ?? Date.now() / 1000;
    return [Math.min(plot.data[0].length > 1 ? low : last, last - LEAST_S), last];
}

/** The values without a neighbour, which are points: a line needs two. */
function lonely(plot, series) {
    const values = plot.data[series];
    return values.flatMap((value, index) => value !== null && (values[index - 1] ?? null) === null && (values[index + 1] ?? null) === null ? [index] : []);
}

function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** A value of a sample; null for what is not known. */
function valueOf(value, factor) {
    return value === null || value === undefined ? null : value * factor;
}

/** A chart of some columns of the samples: `lines` has column, label and an optional factor of each; `shown` writes a value. */
export class Chart {
    constructor(title, unit, lines, shown = figure) {
        this.shown = shown;
        this.lines = lines;
        this.unit = unit;
        this.title = title;
        this.canvas = h("div", {class: "plot"});
        this.element = h("div", {class: "card chart", role: "group", "aria-label": title},
            h("p", {class: "caption"}, title, unit ? h("span", {class: "hint"}, ` ${unit}`) : null), this.canvas);
        this.theme = matchMedia("(prefers-color-scheme: dark)");
        this.redraw = () => this.#draw(true);
        this.theme.addEventListener("change", this.redraw);
        this.observer = new ResizeObserver(() => this.plot?.setSize(this.#size()));
        this.observer.observe(this.canvas);
    }

    /** Shows these samples, an object of lists by column. `now` has values of this moment, by column, where they are known. */
    async show(samples, now = {}) {
        this.samples = samples;
        this.now = now;
        await this.#draw(false);
        const last = this.lines.map(({column, label, factor = 1}) => `${label} ${this.shown(this.#current(column, factor))}`);
        this.canvas.setAttribute("role", "img");
        this.canvas.setAttribute("aria-label", `${this.title}${this.unit && `, ${this.unit}`}; now: ${last.join(", ")}`);
    }

    close() {
        this.theme.removeEventListener("change", this.redraw);
        this.observer.disconnect();
        this.plot?.destroy();
    }

    /** What a column is now: as the rest of the page has it, or as of the newest sample. */
    #current(column, factor) {
        return valueOf(this.now[column] ?? this.samples[column].at(-1), factor);
    }

    #size() {
        return {width: Math.max(this.canvas.clientWidth, 120), height: HEIGHT};
    }

    #data() {
        const {samples} = this;
        return [samples.at.map((at) => at / 1000), ...this.lines.map(({column, factor = 1}) =>
            samples[column].map((value) => valueOf(value, factor)))];
    }

    async #draw(isNew) {
        const uPlot = await plots;
        if (uPlot === null || this.samples === undefined || !this.canvas.isConnected) {
            return;
        }
        if (isNew) {
            this.plot?.destroy();
            this.plot = undefined;
        }
        if (this.plot === undefined) {
            this.plot = new uPlot(this.#options(), this.#data(), this.canvas);
        } else {
            this.plot.setData(this.#data());
        }
    }

    #options() {
        const axis = {stroke: colour("--faint"), grid: {stroke: colour("--line"), width: 1}, ticks: {stroke: colour("--line"), width: 1}, font: "11px system-ui"};
        return {
            ...this.#size(),
            // A filled mark beside the name and the last value of each line.
            legend: {markers: {width: 0, fill: (plot, at) => at > 0 ? colour(COLOURS[at - 1]) : "transparent"}},
            cursor: {sync: {key: sync}, drag: {x: false, y: false}},
            scales: {x: {time: true, range: times}, y: {range: (plot, low, high) => [0, Math.max(high ?? 0, 1) * 1.1]}},
            axes: [{...axis, values: clock, space: 72}, {...axis, size: 72, values: (plot, values) => values.map((value) => this.shown(value))}],
            series: [{label: "at", value: (plot, value, _, index) => index === null || index === undefined ? "now" : clock(plot, [value, value + 1])[0]}, ...this.lines.map(({label, column, factor = 1}, index) => ({
                label,
                stroke: colour(COLOURS[index]),
                width: 1.5,
                points: {size: 4, fill: colour(COLOURS[index]), filter: lonely},
                spanGaps: false,
                // Without a pointer on the chart, what is now.
                value: (plot, value, _, place) => this.shown(place === null || place === undefined ? this.#current(column, factor) : value),
            }))],
        };
    }
}
