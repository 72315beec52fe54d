"""Small documents of several kinds, made byte by byte."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

_TYPES = """<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/\
content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.\
relationships+xml"/><Override PartName="/word/document.xml" ContentType="application/vnd.\
openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>"""
_RELATIONS = """<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/\
package/2006/relationships"><Relationship Id="a" Type="http://schemas.openxmlformats.org/\
officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/></Relationships>"""
_WORDS = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def write_docx(path: Path, paragraphs: Sequence[str]) -> Path:
    """A Word document with these paragraphs."""
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    document = f'<w:document xmlns:w="{_WORDS}"><w:body>{body}</w:body></w:document>'
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("[Content_Types].xml", _TYPES)
        file.writestr("_rels/.rels", _RELATIONS)
        file.writestr("word/document.xml", f'<?xml version="1.0"?>{document}')
    return path


def write_pdf(path: Path, pages: Sequence[str]) -> Path:
    """A PDF with one line of text on each page; a page of an empty text holds none."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    kids = []
    for text in pages:
        shown = f"BT /F1 12 Tf 20 700 Td ({text}) Tj ET" if text else ""
        objects.append(f"<< /Length {len(shown)} >>\nstream\n{shown}\nendstream")
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 1200 800] "
            f"/Contents {len(objects)} 0 R /Resources << /Font << /F1 3 0 R >> >> >>"
        )
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    content, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(content))
        content += f"{number} 0 obj\n{text}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    content += (
        f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\n"
        f"startxref\n{len(content)}\n%%EOF\n"
    ).encode()
    path.write_bytes(content)
    return path
