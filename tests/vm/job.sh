# The first program of a guest, once the host's files are there: prepares the rest, runs the command, says how it
# ended, and switches off. xtask puts variables and the function
# `command` in front; see `Guest::job`.
# in front.
busybox() { "$files/busybox" "$@"; }

mount -t tracefs tracefs /sys/kernel/tracing
mount -t debugfs debugfs /sys/kernel/debug
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
busybox ip link set lo up
busybox hostname "linux-$name"

# Ports are found by name: there is no udev to make links.
port() {
    for port in /sys/class/virtio-ports/*; do
        if [ "$(cat "$port/name")" = "$1" ]; then
            echo "/dev/${port##*/}"
        fi
    done
}
# Makes /dev/kfd.
load_driver() {
    for module in $(cat "$files/modules/driver.list"); do
        busybox insmod "$files/modules/$module"
    done
}
if [ "$driver" = yes ]; then
    load_driver
fi

exec 3>"$(port gputrace.status)"
command <"$run/empty" >"$(port gputrace.out)" 2>"$(port gputrace.err)"
echo $? >&3
exec 3>&-
busybox poweroff -f
