/** The connection of this page. All components share it. */
import {connect} from "@crewel/client";

const asked = new URLSearchParams(globalThis.location?.search);

export const connection = connect({
    url: asked.get("server") ?? "http://127.0.0.1:8080/cometd",
    name: asked.get("name") ?? "shop/1",
});
