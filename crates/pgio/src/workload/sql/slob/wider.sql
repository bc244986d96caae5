, filler = substr(noise, 1 + (scratch % 1024)::int, {width}) || substr(filler, {width} + 1)
