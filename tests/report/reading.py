"""A page read again, by the standard library's parser."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "hr", "input"}


@dataclass
class Node:
    """An element."""

    name: str
    attributes: dict[str, str | None]
    children: list["Node | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, *names: str, **attributes: str) -> list["Node"]:
        """Elements below, by name and by attributes; in document order."""
        wanted = {(key.rstrip("_"), value) for key, value in attributes.items()}
        found: list[Node] = []
        for child in self.children:
            if isinstance(child, Node):
                if (not names or child.name in names) and wanted <= child.attributes.items():
                    found.append(child)
                found += child.all(*names, **attributes)
        return found

    def one(self, *names: str, **attributes: str) -> "Node":
        (only,) = self.all(*names, **attributes)
        return only

    def section(self, name: str) -> "Node":
        return self.one("section", id=name)

    def number(self, attribute: str) -> float:
        return float(self.attributes[attribute] or "")

    def rows(self) -> list[list[str]]:
        """Texts of the cells of a table's body."""
        return [[cell.text for cell in row.all("th", "td")] for row in self.one("tbody").all("tr")]


class Reader(HTMLParser):
    """Builds the tree, and refuses what is not balanced."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Node("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in <{tag}>"
        node = Node(tag, dict(attrs))
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().name == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(page: str) -> Node:
    """The page as a tree; fails if its elements are not balanced."""
    assert page.startswith("<!DOCTYPE html>\n")
    reader = Reader()
    reader.feed(page)
    reader.close()
    (root,) = reader.open  # none is left unclosed
    return root
