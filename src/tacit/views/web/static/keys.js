// The keyboard: a few letters for the whole page, and arrows among things that lie side by side.

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function typing(target) {
  return target instanceof HTMLElement && target.closest("input:not([type=range]), select, textarea") !== null;
}

/** Call what belongs to a letter, unless somebody writes or holds another key down. */
export function letters(actions) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    const action = actions[event.key];
    if (!action || (typing(event.target) && event.key !== "Escape")) return;
    if (action(event) !== false) event.preventDefault();
  });
}

function centre(node) {
  const box = node.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
}

/** The nearest of some nodes in a direction; what lies aside counts thrice. */
function nearest(from, nodes, [right, down]) {
  const [x, y] = centre(from);
  let best = null;
  let least = Infinity;
  for (const node of nodes) {
    if (node === from) continue;
    const [dx, dy] = [centre(node)[0] - x, centre(node)[1] - y];
    const ahead = dx * right + dy * down;
    const aside = Math.abs(dx * down) + Math.abs(dy * right);
    if (ahead < 1) continue;
    const far = ahead + 3 * aside;
    if (far < least) [best, least] = [node, far];
  }
  return best;
}

/** Let the arrows move the focus among what a selector finds, by where it lies on the screen. */
export function arrows(root, selector) {
  root.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    const from = event.target.closest?.(selector);
    if (!step || !from || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = nearest(from, root.querySelectorAll(selector), step);
    if (!next) return;
    event.preventDefault();
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  });
}
