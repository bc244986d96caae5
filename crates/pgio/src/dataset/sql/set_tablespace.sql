ALTER {kind} {name} SET TABLESPACE {tablespace}
