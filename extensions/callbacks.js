/** Functions that the application hands over, such as `onRefused`. */

/**
 * Calls one and returns what it returns. What it throws, or rejects with, goes into the console, under this name: the fault is the application's, and must
 * not stop what calls the function.
 */
export function callBack(name, callback, ...given) {
    const report = (error) => console.error(`crewel: ${name} failed`, error);
    try {
        const result = callback(...given);
        if (typeof result?.then === "function") { // an async function: in Node.js, a rejection that is not handled ends the program
            result.then(undefined, report);
        }
        return result;
    } catch (error) {
        report(error);
        return undefined;
    }
}
