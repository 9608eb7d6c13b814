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

deep_native 60 1 0 >/dev/null &
native=$!
"$PYTHON" -S -E /chain.py &
python=$!
LD_LIBRARY_PATH=/sim gpu_launch --threads 1 --rate 200 --seconds 600 >/dev/null 2>&1 &
launches=$!
sleep 4

# said WORDS: waits until the recorder has said so, which an emulated kernel takes up to a minute for.
said() {
    waited=0
    until grep -q "$1" /tmp/all.log; do
        [ -d "/proc/$recorder" ] && [ "$waited" -lt 200 ] || break
        sleep 1
        waited=$((waited + 1))
    done
}

# One capture of all three: the programs are verified and attached once. What is captured stands still meanwhile, since
# emulated processors are slow. It runs for ten seconds from the first complete stack; what went wrong is printed.
kill -STOP "$native" "$python" "$launches"
deepctx-bpf record --verbose --pid "$native" --pid "$python" --pid "$launches" --off-cpu \
    --context python,native,kernel -o /tmp/all >/tmp/all.log 2>&1 &
recorder=$!
said "the probes are in place"
kill -CONT "$native" "$python" "$launches"
said "first complete stack after"
sleep 10
kill -INT "$recorder"
kill -STOP "$native" "$python" "$launches"
wait "$recorder" || { echo "failed"; tail -n 25 /tmp/all.log; }

# counted WHAT PID METRIC AWK: how much of a metric of this process lies in stacks that the awk condition accepts.
counted() {
    deepctx-bpf export /tmp/all --metric "$3" --format folded -o - | grep "^[^;]*-$2;" |
        awk -v name="$1 $3" "{ value = \$NF; all += value; if ($4) matching += value }
            END { printf \"check %s: %.0f of %.0f\\n\", name, matching, all }"
}

counted native "$native" samples 'gsub(/descend\(/, "") == 60'
counted native "$native" samples '/\[unknown: / ? 0 : 1'
counted python "$python" samples '/chain.py:outer.*chain.py:middle.*chain.py:inner|chain.py:nap/'
counted python "$python" off-cpu-time '/chain.py:nap.*\[off-cpu: /'
counted launches "$launches" kernels '/gpu_launch-.*step<12>.*step<1>.*launch_.*cuLaunchKernel;/'
poweroff -f
