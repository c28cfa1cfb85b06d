"""What somebody without a mouse, or without eyes, gets of a page: where the Tab key leads, what things are called."""

import itertools

STOP = """() => {
    const one = document.activeElement;
    if (!one || one === document.body || one === document.documentElement) return null;
    const point = one.querySelector(".target");  // in a picture the ring is a shape of its own
    const box = (point ?? one).getBoundingClientRect();
    let [across, top] = [0, box.top];  // as if nothing were scrolled, but not below what scrolls on its own
    for (let node = one.parentElement; node && node !== document.documentElement; node = node.parentElement) {
        across += node.scrollLeft;
        if (node.scrollTop) top = Math.min(top + node.scrollTop, node.getBoundingClientRect().bottom);
    }
    const seen = [box.left + 3, (box.left + box.right) / 2, box.right - 3].every((x) => {  // at both ends, and between
        const within = Math.min(Math.max(x, 1), innerWidth - 2);
        const there = document.elementFromPoint(within, box.top + Math.min(box.height / 2, 20));
        return there !== null && (one.contains(there) || there.contains(one));
    });
    return {
        name: one.getAttribute("aria-label") || one.labels?.[0]?.textContent || one.textContent.trim(),
        left: box.left + across, right: box.right + across, top: top + scrollY,
        ring: getComputedStyle(one).outlineStyle !== "none" || (point && getComputedStyle(point).stroke !== "none"),
        seen,
    };
}"""
BEGIN = """() => {
    document.body.tabIndex = -1;
    document.body.focus();
    document.body.removeAttribute("tabindex");
    for (const one of [document.documentElement, ...document.querySelectorAll(".scroll, .legend")]) one.scrollTo(0, 0);
}"""
COVERED = """() => [...document.querySelectorAll(".stack tbody th, .stack tbody td")].filter((cell) => {
    if (getComputedStyle(cell, "::before").position !== "absolute") return false;  // it has no name beside it
    const beside = parseFloat(getComputedStyle(cell).paddingLeft);
    return cell.checkVisibility() && (beside < 100 || cell.clientWidth - beside < 100);
}).map((cell) => cell.textContent)"""  # cells on a phone that lie over their names, or have no room beside them
NAMED = {
    "button", "combobox", "dialog", "group", "image", "img", "link", "progressbar", "region", "searchbox", "slider",
    "table", "textbox",
}  # fmt: skip
PLACED = {"heading", "table", "image", "img", "group", "slider"}  # what is looked for on the screen


def stops(page, most=200):
    """Everything that the Tab key reaches, from the top of the page to its end."""
    page.evaluate(BEGIN)
    return walked(page, "Tab", most)


def walked(page, key, most=200):
    """Everything that a key reaches from where the focus is: behind the last one comes the window."""
    found = []
    for _ in range(most):
        page.keyboard.press(key)
        one = page.evaluate(STOP)
        if one is None or one in found[:1]:  # some go on with the first one again
            return found
        found.append(one)
    raise AssertionError(f"the key does not come to an end: {found[-3:]}")


def check_stops(found):
    """The focus is seen wherever it is, and goes down the page, or to the right of where it was."""
    check_seen(found)
    check_order(found)


def check_seen(found):
    for one in found:
        assert one["name"], one
        assert one["ring"], f"nobody sees that this has the focus: {one}"
        assert one["seen"], f"what has the focus is covered, or out of sight: {one}"


def check_order(found):
    for before, after in itertools.pairwise(found):
        onwards = after["top"] > before["top"] - 8 or after["left"] > before["right"] - 8
        assert onwards, f"it goes back up, from {before} to {after}"


def reading(page):
    """What a screen reader is told of the page, in its order: role, name, level and description, and where it lies."""
    page.evaluate("scrollTo(0, 0)")
    session = page.context.new_cdp_session(page)
    session.send("Accessibility.enable")
    nodes = {one["nodeId"]: one for one in session.send("Accessibility.getFullAXTree")["nodes"]}
    found, open_ = [], [next(iter(nodes.values()))]
    while open_:
        one = open_.pop()
        open_ += [nodes[child] for child in reversed(one.get("childIds", ())) if child in nodes]
        if not one["ignored"]:
            found.append(told(session, one))
    session.detach()
    return found


def told(session, node):
    made = {name: node.get(name, {}).get("value", "").strip() for name in ("role", "name", "description")}
    made |= {one["name"]: one["value"].get("value") for one in node.get("properties", ()) if one["name"] == "level"}
    if made["role"] in PLACED:
        corners = session.send("DOM.getBoxModel", {"backendNodeId": node["backendDOMNodeId"]})["model"]["border"]
        made |= {"left": min(corners[::2]), "right": max(corners[::2]), "top": min(corners[1::2])}
    return made


def check_reading(found):
    """One place of each kind, one first heading and no level left out, and all of it in the order that eyes have."""
    for role in ("main", "banner"):
        assert sum(one["role"] == role for one in found) == 1, role
    levels = [one["level"] for one in found if one["role"] == "heading"]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels
    assert [one["role"] for one in found if one["role"] in NAMED and not one["name"]] == []
    check_order([one for one in found if "top" in one])
