/** The client that connect.js uses, as npm provides it. */
export {AckExtension, CometD} from "cometd";
