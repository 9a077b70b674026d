/** The client that connect.js uses, as npm provides it. In version 7, which the other modules take, it has no AckExtension. */
import * as cometd from "cometd";

export const {AckExtension, CometD} = cometd;
