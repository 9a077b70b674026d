export * from "./connect.js";
export * from "./messages.js";
export * from "./outbox.js";
export * from "./presence.js";
export * from "./request.js";
export * from "./session.js";
export * from "./update.js";
