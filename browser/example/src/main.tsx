import {StrictMode} from "react";
import {createRoot} from "react-dom/client";

import {Orders} from "./Orders";

createRoot(document.getElementById("root")!).render(
    <StrictMode>
        <Orders />
    </StrictMode>
);
