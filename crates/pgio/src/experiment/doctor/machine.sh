# What a machine is and does at this moment: a name, a tab and a value on each line. Reads only.
say() { printf '%s\t%s\n' "$1" "$2"; }
cpu() { sed -n 's/^cpu  *//p' /proc/stat; }
memory() { sed -n "s/^$1: *\([0-9]*\) kB/\1/p" /proc/meminfo; }
say cpu_before "$(cpu)"
sleep 1
say cpu_after "$(cpu)"
say cores "$(grep -c '^cpu[0-9]' /proc/stat)"
say memory_kb "$(memory MemTotal)"
say available_kb "$(memory MemAvailable)"
say governors "$(cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor 2>/dev/null | sort -u | tr '\n' ' ')"
say clock_source "$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource 2>/dev/null)"
