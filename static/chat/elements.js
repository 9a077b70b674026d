/**
 * Small helpers for elements of the page. What others sent goes into texts only.
 */

export function make(tag, kind = "", text = "") {
    const element = document.createElement(tag);
    element.className = kind;
    element.textContent = text;
    return element;
}

/** Sets a text if it is another one: what is read aloud is read once. */
export function setText(element, text) {
    if (element.textContent !== String(text)) {
        element.textContent = text;
    }
}
