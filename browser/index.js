/** All of @crewel/client but the hooks, which are @crewel/client/react. Without a bundler, import the modules one by one from /extensions/ of your server. */
export {ReplyError, connect} from "./connect.js";
export {AnswerTimeoutError, ErrorAnswer, RequestError, RequestExtension, createResponse, replyChannel} from "./request.js";
export {Outbox, OutboxFullError, OutboxInUseError} from "./outbox.js";
export {Presence, PresenceError} from "./presence.js";
export {SessionExtension} from "./session.js";
export {UpdateExtension} from "./update.js";
