/** Functions that the application hands over, such as `onRefused`. */

/**
 * Calls one and returns what it returns. What it throws goes into the console, under this name: the fault is the application's, and must
 * not stop what calls the function.
 */
export function callBack(name, callback, ...given) {
    try {
        return callback(...given);
    } catch (error) {
        console.error(`crewel: ${name} failed`, error);
        return undefined;
    }
}
