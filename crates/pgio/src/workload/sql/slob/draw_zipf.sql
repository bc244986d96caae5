            -- Hörmann and Derflinger (1996), rejection-inversion: invert the integral of 1 / x^q and
            -- take the nearest key, unless it lies in the sliver by which the integral around k exceeds
            -- 1 / k^q. The first test nearly always decides, without another power.
            LOOP
                x := {inverse};
                k := x::bigint;
                EXIT WHEN k - x <= {squeeze} OR {accepted};
            END LOOP;
