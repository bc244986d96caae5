DROP ROUTINE {routine}
