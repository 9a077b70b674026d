/** The connection of this page. Next.js imports this file on its server too, where it does nothing. */
import {connect} from "@crewel/client";

export const connection = connect({url: process.env.NEXT_PUBLIC_CREWEL_URL ?? "http://127.0.0.1:8080/cometd", name: "shop/1"});
