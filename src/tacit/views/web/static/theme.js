// Sets the theme before anything is painted. Not a module, for a module would come after the first paint.
"use strict";
(() => {
  const wanted = ["light", "dark"];
  let kept = null;
  try {
    kept = localStorage.getItem("tacit.theme");
  } catch {
    kept = null; // a browser that keeps nothing goes by the system
  }
  if (wanted.includes(kept)) document.documentElement.dataset.theme = kept;
})();
