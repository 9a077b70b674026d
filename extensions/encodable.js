/** What JSON can represent. */

/**
 * Returns a copy of the data as the other side will read it, so that later changes have no effect. Throws a TypeError for a
 * value that JSON would change: JSON.stringify turns NaN into null, and binary data into {}.
 */
export function copied(value, name = "data") {
    const fault = notEncodable(value, name);
    if (fault !== null) {
        throw new TypeError(`${fault}, which JSON cannot represent`);
    }
    return value === undefined ? null : JSON.parse(JSON.stringify(value));
}

/** Returns what JSON cannot represent in a value, and where, such as "data.price[2] is NaN"; or null. */
function notEncodable(value, path) {
    if (typeof value === "number" && !Number.isFinite(value)) {
        return `${path} is ${value}`;
    }
    if (typeof value === "string" && /\p{Surrogate}/u.test(value)) {
        return `${path} is text that is not valid Unicode`;
    }
    if (typeof value === "bigint") {
        return `${path} is a BigInt`;
    }
    if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) {
        return `${path} is ${value.byteLength} bytes`;
    }
    if (typeof value !== "object" || value === null || typeof value.toJSON === "function") {
        return null;
    }
    const named = Array.isArray(value) ? (name) => `${path}[${name}]` : (name) => `${path}.${name}`;
    for (const [name, each] of Object.entries(value)) {
        const fault = notEncodable(each, named(name));
        if (fault !== null) {
            return fault;
        }
    }
    return null;
}
