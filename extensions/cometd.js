/** The client that connect.js uses, as this server provides it. The npm package has a file of this name for the one from npm. */
export {AckExtension, CometD} from "../static/vendor/cometd/cometd.js";
