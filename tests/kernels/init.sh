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

# ticks PID: what a process has used of the CPU, in hundredths of a second.
ticks() {
    awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat"
}

# until_idle PID: waits until a process uses less than half a CPU for three seconds, two minutes at most.
until_idle() {
    tries=0
    after=$(ticks "$1")
    until [ "$tries" -ge 40 ]; do
        tries=$((tries + 1))
        before=$after
        sleep 3
        after=$(ticks "$1") || return 0
        [ $((after - before)) -ge 150 ] || break
    done
}

# captured NAME SECONDS OPTIONS…: records the process $target, and once more where the recorder says that this machine
# was too slow for its deadlines: an emulated CPU that waits for a real one looks like memory that does not answer.
captured() {
    recorded "$@"
    if grep -q "did not answer within\|answers late or not at all" "/tmp/$1.log"; then
        echo "memory was read too slowly, once more: $1"
        recorded "$@"
    fi
    [ "$status" = 0 ] || { echo "failed $1"; tail -n 25 "/tmp/$1.log"; }
}

# recorded NAME SECONDS OPTIONS…: records for that long from when the probes are in place and the first complete stack
# came, which an emulated kernel takes up to a minute for. The exit code is in $status.
recorded() {
    name=$1
    seconds=$2
    shift 2
    kill -CONT "$target"
    deepctx-bpf record --verbose --force --pid "$target" -o "/tmp/$name" "$@" >"/tmp/$name.log" 2>&1 &
    recorder=$!
    waited=0
    until grep -q "the probes are in place" "/tmp/$name.log" &&
        grep -q "first complete stack after" "/tmp/$name.log"; do
        [ -d "/proc/$recorder" ] && [ "$waited" -lt 200 ] || break
        sleep 1
        waited=$((waited + 1))
    done
    sleep "$seconds"
    # What was captured is worked off while the target stands still: an end waits for that for some seconds only, and
    # an emulated kernel on a busy machine takes a minute for it.
    kill -STOP "$target"
    until_idle "$recorder"
    kill -INT "$recorder"
    status=0
    wait "$recorder" || status=$?
}

# counted NAME METRIC AWK: how much of a metric lies in stacks that the awk condition accepts.
counted() {
    deepctx-bpf export "/tmp/$1" --metric "$2" --format folded -o - |
        awk -v name="$1 $2" "{ value = \$NF; all += value; if ($3) matching += value }
            END { printf \"check %s: %.0f of %.0f\\n\", name, matching, all }"
}

deep_native 60 1 0 >/dev/null &
target=$!
sleep 1
captured native 5
counted native samples 'gsub(/descend\(/, "") == 60'
counted native samples '/\[unknown: / ? 0 : 1'
kill -KILL "$target"

"$PYTHON" -S -E /chain.py &
target=$!
sleep 4
captured python 5 --off-cpu --context python,native,kernel
counted python samples '/chain.py:outer.*chain.py:middle.*chain.py:inner|chain.py:nap/'
counted python off-cpu-time '/chain.py:nap.*\[off-cpu: /'
kill -KILL "$target"

LD_LIBRARY_PATH=/sim gpu_launch --threads 1 --rate 200 --seconds 600 >/dev/null 2>&1 &
target=$!
sleep 3
captured launches 8
counted launches kernels '/gpu_launch-.*step<12>.*step<1>.*launch_.*cuLaunchKernel;/'
poweroff -f
