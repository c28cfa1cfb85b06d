"""What somebody without a mouse, or without eyes, gets of a page: where the Tab key leads, what things are called."""

import itertools

STOP = """() => {
    const one = document.activeElement;
    if (!one || one === document.body || one === document.documentElement) return null;
    const box = one.getBoundingClientRect();
    let [across, down] = [0, scrollY];  // by how much it was scrolled, with all that it lies in
    for (let node = one.parentElement; node && node !== document.documentElement; node = node.parentElement) {
        across += node.scrollLeft;
        down += node.scrollTop;
    }
    const aim = [box.left + Math.min(box.width, innerWidth) / 2, box.top + Math.min(box.height / 2, 20)];
    const there = document.elementFromPoint(...aim);
    const point = one.querySelector(".target");  // in a picture the ring is a shape of its own
    return {
        name: one.getAttribute("aria-label") || one.labels?.[0]?.textContent || one.textContent.trim(),
        left: box.left + across, right: box.right + across, top: box.top + down,
        ring: getComputedStyle(one).outlineStyle !== "none" || (point && getComputedStyle(point).stroke !== "none"),
        seen: there !== null && (one.contains(there) || there.contains(one)),
    };
}"""
NAMED = {
    "button", "combobox", "dialog", "group", "image", "img", "link", "progressbar", "region", "searchbox", "slider",
    "table", "textbox",
}  # fmt: skip


def stops(page, most=200):
    """Everything that the Tab key reaches, from the top of the page to its end."""
    page.evaluate("document.activeElement.blur(); getSelection().collapse(document.body, 0); scrollTo(0, 0)")
    found = []
    for _ in range(most):
        page.keyboard.press("Tab")
        one = page.evaluate(STOP)
        if one is None or one in found[:1]:  # behind the last one comes the window, or the first one again
            return found
        found.append(one)
    raise AssertionError(f"the Tab key does not come to an end: {found[-3:]}")


def check_stops(found):
    """The focus is seen wherever it is, and goes down the page, or to the right of where it was."""
    for one in found:
        assert one["name"], one
        assert one["ring"], f"nobody sees that this has the focus: {one}"
        assert one["seen"], f"what has the focus is covered, or out of sight: {one}"
    for before, after in itertools.pairwise(found):
        onwards = after["top"] > before["top"] - 8 or after["left"] > before["right"] - 8
        assert onwards, f"the focus goes back up, from {before} to {after}"


def tree(page):
    """What a screen reader is told of the page: (role, name) of everything, in its order."""
    session = page.context.new_cdp_session(page)
    session.send("Accessibility.enable")
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    told = [one for one in nodes if not one["ignored"]]
    return [(one["role"]["value"], one.get("name", {}).get("value", "").strip()) for one in told]


def unnamed(page):
    """Roles of what has no name, though it should have one."""
    return [role for role, name in tree(page) if role in NAMED and not name]
