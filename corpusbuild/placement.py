"""Where documents stand in a build: the order of its parts, and the names of files that speak of one part."""


def part_name_of(source: int, part: str) -> str:
    """The name of a part among those of all sources, given the source's position in the plan. Names sort in plan order.

    >>> part_name_of(3, "part-00012")
    '00003-part-00012'
    """
    return f"{source:05d}-{part}"


def source_and_part(name: str) -> tuple[int, str]:
    """Undo :func:`part_name_of`.

    >>> source_and_part("00003-part-00012")
    (3, 'part-00012')
    """
    source, _, part = name.partition("-")
    return int(source), part
