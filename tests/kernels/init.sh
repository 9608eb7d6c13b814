#!/bin/busybox sh
# First process of a guest: captures known programs and prints one line for each check,
# `check NAME: MATCHING of ALL`, then turns the machine off.
/bin/busybox --install -s /bin
export PATH=/bin HOME=/
mkdir -p /proc /sys /dev /tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tracefs tracing /sys/kernel/tracing
echo "guest kernel $(uname -r)"

# stage NAME: prints how long the guest has run when it comes here; the last one tells where a guest hung.
stage() {
    echo "stage $1 after $(cut -d ' ' -f 1 /proc/uptime) s"
}

# ticks PID: what a process has used of the CPU, in hundredths of a second.
ticks() {
    awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat"
}

# until_used PID SECONDS: waits until a process has used as much of the CPU from now on.
until_used() {
    until_ticks=$(($(ticks "$1") + 100 * $2))
    while [ "$(ticks "$1")" -lt "$until_ticks" ]; do
        sleep 1
    done
}

# until_launched COUNT: waits until so many kernels were launched from now on.
until_launched() {
    launched=$(($(launches) + $1))
    while [ "$(launches)" -lt "$launched" ]; do
        sleep 1
    done
}

launches() {
    awk '$1 == "tick" { count = $2 } END { print count + 0 }' /tmp/launch.out
}

# until_said PID FILE WORDS: waits until a process has written all words to a file; turns the machine off if it ends.
until_said() {
    writer=$1
    file=$2
    shift 2
    for words; do
        until grep -q "$words" "$file"; do
            [ -d "/proc/$writer" ] || { tail -n 25 "$file"; poweroff -f; }
            sleep 1
        done
    done
}

# until_level PID FILE: waits until four progress lines of the recorder, 15 s, have the same number of samples, or until
# it has ended. Its use of the CPU would not tell: an emulated CPU that waits for a real one is always busy.
until_level() {
    while [ -d "/proc/$1" ]; do
        grep -o '[0-9]* samples  ' "$2" | tail -n 4 | uniq -c | grep -q '^ *4 ' && break
        sleep 5
    done
}

# counted PROGRAM METRIC AMONG MATCHING: of a program's stacks that the awk condition AMONG accepts, the share of a metric
# that MATCHING accepts, too, and what the others end in. A name that memory did not give in time is counted apart: an
# emulated CPU that waits for a real one answers late.
counted() {
    deepctx-bpf export /tmp/profile --metric "$2" --format folded -o - |
        awk -v program="$1" -v name="$1 $2" 'index($0, program) != 1 { next }
            /\[unknown: python-silent\]/ { silent += $NF; next }
            '"$3"' { value = $NF; all += value; if ('"$4"') { matching += value; next }
                reason = match($0, /\[unknown: [^]]*/) ? substr($0, RSTART + 1, RLENGTH - 1) : "another stack"
                others[reason] += value }
            END { printf "check %s: %.0f of %.0f\n", name, matching, all
                  for (reason in others) printf "not counted in %s: %.0f with %s\n", name, others[reason], reason
                  if (silent) printf "memory was silent for %.0f of %s\n", silent, name }'
}

deep_native 60 1 0 >/tmp/native.out &
native=$!
"$PYTHON" -u -S -E /chain.py >/tmp/python.out &
python=$!
LD_LIBRARY_PATH=/sim gpu_launch --threads 1 --rate 20 --seconds 3600 >/tmp/launch.out 2>&1 &
launch=$!
stage programs
until_said "$native" /tmp/native.out ready
until_said "$python" /tmp/python.out ready
until_said "$launch" /tmp/launch.out ready
renice -n 10 -p "$native" "$python" "$launch"
# The recorder starts many times faster while nothing else wants the emulated CPUs, and has no backlog then.
kill -STOP "$native" "$python" "$launch"

stage record
deepctx-bpf record --verbose --freq 49 --pid "$native" --pid "$python" --pid "$launch" --off-cpu \
    --context python,native,kernel -o /tmp/profile >/tmp/record.log 2>&1 &
recorder=$!
until_said "$recorder" /tmp/record.log "the probes are in place"
stage capture
kill -CONT "$native" "$python" "$launch"
until_said "$recorder" /tmp/record.log "first complete stack after"
# What has enough samples stands still: what was captured has to be worked off, too, and an end waits for that for some
# seconds only.
until_used "$native" 2
kill -STOP "$native"
until_used "$python" 2
kill -STOP "$python"
until_launched 100
kill -STOP "$launch"
stage catch-up
until_level "$recorder" /tmp/record.log
stage end
kill -INT "$recorder"
wait "$recorder" || tail -n 25 /tmp/record.log

stage checks
# The main thread only sleeps, but waking up takes an emulated CPU so long that it has samples, too.
counted deep_native samples '/leaf\(/' 'gsub(/descend\(/, "") == 60'
counted deep_native samples 1 '/\[unknown: / ? 0 : 1'
counted python samples 1 '/chain.py:outer.*chain.py:middle.*chain.py:inner|chain.py:nap/'
counted python off-cpu-time 1 '/chain.py:nap.*\[off-cpu: /'
counted gpu_launch kernels 1 '/step<12>.*step<1>.*launch_.*cuLaunchKernel;/'
# Printed with a check that fails.
grep -v ' samples/s ' /tmp/record.log | tail -n 40
poweroff -f
