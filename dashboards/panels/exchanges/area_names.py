"""Places for names in the areas of a map of cells, where they hide nothing and fit into their area."""

from collections.abc import Sequence

Cell = tuple[int, int]  # row and column
LETTER_SHARE = 0.021  # of the width of the map, which a letter takes on a phone
CLEAR_WIDTH_SHARE = 0.16  # of the map, on both sides of a mark that no name may hide
ROWS_TO_MARK = 1  # above and below a mark that no name may touch
ROWS_OF_NAME = 3  # columns that count as much as a row: a name is wide and low


def find_roomiest_cell(name: str, area: Sequence[Sequence[bool]], taken: Sequence[Cell] = ()) -> Cell | None:
    """Return the cell of an area with the most room for its name around it; None where it has too little."""
    columns = len(area[0])
    rooms: list[tuple[tuple[int, int], Cell]] = []
    for row, cells in enumerate(area):
        for column, inside in enumerate(cells):
            if not inside or any(is_hidden(cell, (row, column), columns, ROWS_TO_MARK) for cell in taken):
                continue
            left, right = count_inside(cells[:column][::-1]), count_inside(cells[column + 1 :])
            if 2 * min(left, right) + 1 < LETTER_SHARE * len(name) * columns:
                continue
            line = [other[column] for other in area]
            above, below = count_inside(line[row + 1 :]), count_inside(line[:row][::-1])
            beside, beyond = min(left, right), ROWS_OF_NAME * min(above, below)
            rooms.append(((min(beside, beyond), beside + beyond), (row, column)))
    return max(rooms, key=lambda room: room[0])[1] if rooms else None


def is_hidden(cell: Cell, name: Cell, columns: int, rows: int = 0) -> bool:
    """Return whether a name would hide what is in a cell, up to so many rows away from it."""
    return abs(cell[0] - name[0]) <= rows and abs(cell[1] - name[1]) <= CLEAR_WIDTH_SHARE * columns


def count_inside(cells: Sequence[bool]) -> int:
    """Return how many cells at the beginning are inside of the area."""
    return next((place for place, inside in enumerate(cells) if not inside), len(cells))
