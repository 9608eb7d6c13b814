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

# enough: whether there are as many named samples of both programs as a check wants, and some more.
enough() {
    deepctx-bpf export /tmp/all --metric samples --format folded -o - 2>/dev/null |
        awk -v native="-$native;" -v python="-$python;" '
            index($0, native) && /descend\(/ { of_native += $NF }
            index($0, python) && /chain.py:/ { of_python += $NF }
            END { exit !(of_native >= 70 && of_python >= 70) }'
}

# One capture of all three: the programs are verified and attached once. What is captured runs for ten seconds at a time
# and stands still else: emulated processors are slow, and symbols are read meanwhile. What went wrong is printed.
kill -STOP "$native" "$python" "$launches"
deepctx-bpf record --verbose --pid "$native" --pid "$python" --pid "$launches" --off-cpu \
    --context python,native,kernel -o /tmp/all >/tmp/all.log 2>&1 &
recorder=$!
said "the probes are in place"
round=0
until [ "$round" -ge 12 ] || { [ "$round" -gt 0 ] && enough; }; do
    kill -CONT "$native" "$python" "$launches"
    sleep 10
    kill -STOP "$native" "$python" "$launches"
    said "first complete stack after"
    # What is attributed is flushed each five seconds.
    sleep 6
    round=$((round + 1))
done
kill -INT "$recorder"
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
