"""A page read again, by the standard library's parser."""

import re
from dataclasses import dataclass
from xml.etree import ElementTree

VOID = re.compile(r"<((?:meta|link|br|img|hr|input)\b[^>]*)>")
"""Elements that are never closed, unlike those of XML."""


@dataclass(frozen=True)
class Node:
    """An element."""

    element: ElementTree.Element

    @property
    def name(self) -> str:
        return self.element.tag

    @property
    def attributes(self) -> dict[str, str]:
        return self.element.attrib

    @property
    def text(self) -> str:
        return "".join(self.element.itertext())

    def all(self, *names: str, **attributes: str) -> list["Node"]:
        """Elements below, by name and by attributes; in document order."""
        wanted = {(key.rstrip("_"), value) for key, value in attributes.items()}
        _, *below = map(Node, self.element.iter())
        return [
            node
            for node in below
            if node.name in (names or (node.name,)) and wanted <= node.attributes.items()
        ]

    def one(self, *names: str, **attributes: str) -> "Node":
        (only,) = self.all(*names, **attributes)
        return only

    def section(self, name: str) -> "Node":
        return self.one("section", id=name)

    def number(self, attribute: str) -> float:
        return float(self.attributes[attribute])

    def rows(self) -> list[list[str]]:
        """Texts of the cells of a table's body."""
        return [[cell.text for cell in row.all("th", "td")] for row in self.one("tbody").all("tr")]


def read(page: str) -> Node:
    """The page as a tree; fails if elements are not balanced or have an attribute twice."""
    assert page.startswith("<!DOCTYPE html>\n")
    closed = VOID.sub(r"<\1/>", page.partition("\n")[2])
    return Node(ElementTree.fromstring(f"<page>{closed}</page>"))
