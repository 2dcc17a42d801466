// Which of the frame's dialogs is open.

import { signal } from "../vendor.mjs";

/** "", "keys", "commands" or "start". */
export const openDialog = signal("");
