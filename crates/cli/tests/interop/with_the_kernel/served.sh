#!/bin/busybox sh
# What the tests of served arrays do in the guest: `served FUNCTION WORD...`. The harness adds this
# file and raidlab itself to the guest's initramfs.
export PATH=/bin:/laboratory

fail() {
    echo "$*"
    exit 1
}

# until_there SECONDS FILE: waits for a file or a device.
until_there() {
    left=$(($1 * 50))
    until [ -e "$2" ]; do
        [ $left -gt 0 ] || fail "no $2 within $1 s"
        left=$((left - 1))
        usleep 20000
    done
}

# The pattern: the disk of SCSI target 1.
pattern=/dev/$(ls /sys/class/scsi_device/0:0:1:0/device/block)

# server NAME WORD...: a server in the background, with its output in a file.
server() {
    name=$1
    shift
    raidlab serve "$@" --name "$name" >"/tmp/$name.out" 2>&1 3>&- &
    server=$!
}

# ended NAME: the server is stopped in order, and says that all is well.
ended() {
    raidlab stop "$1" || fail "it cannot be stopped: $(cat "/tmp/$1.out")"
    wait "$server" || fail "the server ended with $?: $(cat "/tmp/$1.out")"
}

# put FILE MIB SKIP: so much of the pattern as a file, from this MiB of it on.
put() {
    dd if="$pattern" of="$1" bs=1M count="$2" skip="$3" conv=fsync 2>/tmp/dd || fail "$(cat /tmp/dd)"
}

# same FILE MIB SKIP: the file is that part of the pattern, as it is read from the device.
same() {
    echo 3 >/proc/sys/vm/drop_caches
    # Busybox's cmp goes byte by byte.
    wanted=$(dd if="$pattern" bs=1M count="$2" skip="$3" 2>/dev/null | md5sum)
    [ "$(md5sum <"$1")" = "$wanted" ] || fail "$1 differs"
}

# made DEVICE DIRECTORY: ext4 with default options. By its path: busybox has one, too.
made() {
    /bin/mke2fs -q -F -t ext4 "$1" && mkdir -p "$2" && mount -t ext4 "$1" "$2" || fail "no ext4"
}

# whole DEVICE DIRECTORY: the file system is unmounted, and nothing is wrong with it.
whole() {
    umount "$2" && e2fsck -f -n "$1" || fail "fsck: $?"
}

# copied DEVICE MIB: a file system on a device, with a copy of the pattern that is the same when it
# is mounted again.
copied() {
    made "$1" "/mnt.$$"
    put "/mnt.$$/copy" "$2" 3
    umount "/mnt.$$" && mount -t ext4 "$1" "/mnt.$$" || fail "not mounted again"
    same "/mnt.$$/copy" "$2" 3
    rm "/mnt.$$/copy" && put "/mnt.$$/copy" 2 0 && fstrim "/mnt.$$" || fail "no trim"
    same "/mnt.$$/copy" 2 0
    whole "$1" "/mnt.$$"
}

# create LEVEL MEMBER...: over disks that are all zeroes.
create() {
    level=$1
    shift
    raidlab create --level "$level" --raid-devices $# --assume-clean --homehost none "$@" \
        >/tmp/create.out || fail "no array"
}

# nbd MEMBER...: a server, and the kernel's NBD client.
nbd() {
    insmod /modules/nbd.ko && ip link set lo up || fail "no nbd"
    create 5 "$@"
    server n "$@" --nbd unix:/tmp/nbd.sock --nbd tcp:127.0.0.1:10809
    until_there 20 /tmp/nbd.sock
    nbd-client -unix /tmp/nbd.sock /dev/nbd0 -N n -C 2 || fail "not connected"
    blockdev --getsize64 /dev/nbd0
    copied /dev/nbd0 16
    nbd-client -d /dev/nbd0
    nbd-client 127.0.0.1 10809 /dev/nbd0 -N n || fail "not connected by TCP"
    e2fsck -f -n /dev/nbd0 || fail "fsck by TCP: $?"
    nbd-client -d /dev/nbd0
    ended n
    raidlab scrub --check "$@" || fail "redundancy disagrees"
}

# ublk MEMBER MEMBER MEMBER OTHER OTHER: a block device whose server is killed while it is written,
# and which another server continues. A server of another array does not.
ublk() {
    insmod /modules/ublk_drv.ko || fail "no ublk"
    create 1 "$4" "$5"
    other="$4 $5"
    set -- "$1" "$2" "$3"
    create 5 "$@"
    server u "$@" --ublk --ublk-id 7
    until_there 20 /dev/ublkb7
    blockdev --getsize64 /dev/ublkb7
    copied /dev/ublkb7 16
    mount -t ext4 /dev/ublkb7 /mnt.$$ || fail "not mounted"
    put /mnt.$$/before 8 20
    (put /mnt.$$/while 16 40) &
    writer=$!
    usleep 200000
    kill -9 "$server"
    wait "$server"
    echo "killed $?"
    kill -0 "$writer" 2>/dev/null && echo "written by-the-same-writer yes"
    # shellcheck disable=SC2086 # two words
    raidlab serve $other --name o --ublk --ublk-id 7 --recover >/tmp/o.out 2>&1 3>&-
    echo "other $? $(grep -c 'another array was served' /tmp/o.out)"
    server u "$@" --ublk --ublk-id 7 --recover
    wait "$writer" || fail "a write failed: $(cat /tmp/u.out)"
    same /mnt.$$/before 8 20
    same /mnt.$$/while 16 40
    whole /dev/ublkb7 /mnt.$$
    ended u
    [ ! -e /dev/ublkb7 ] || fail "the device is still there"
    raidlab scrub --check "$@" || fail "redundancy disagrees"
}

# vhost DISK: a disk whose server is outside of this machine; what is on it is looked at there.
vhost() {
    insmod /modules/virtio_blk.ko || fail "no virtio_blk"
    until_there 20 "$1"
    queue=/sys/block/${1#/dev/}
    echo "sectors $(cat "$queue/size")"
    echo "queues $(ls "$queue/mq" | wc -l)"
    echo "serial $(cat "$queue/serial")"
    copied "$1" 16
    made "$1" /mnt
    put /mnt/left 24 7
    whole "$1" /mnt
}

# anonymous: KiB of memory that the server has for itself.
anonymous() {
    awk '/^RssAnon/ { print $2 }' "/proc/$server/status"
}

# watched DEVICE: when a device with requests has completed none for 60 s, the console gets the
# kernel's tasks and memory, and a line for each thread of the server with what it waits for, and
# the machine ends. Builtins only: there may be no memory for another process.
watched() {
    counts=/sys/block/${1#/dev/}/stat
    mkfifo /tmp/never
    exec 4<>/tmp/never
    last=
    left=12
    while [ $left -gt 0 ]; do
        read -r -t 5 _ <&4
        read -r line <"$counts"
        # shellcheck disable=SC2086 # words: requests completed by kind, and in flight the 9th
        set -- $line
        now="$1 $5 ${12} ${16}"
        left=$((left - 1))
        [ "$9" -gt 0 ] && [ "$now" = "$last" ] || left=12
        last=$now
    done
    echo 8 >/proc/sys/kernel/printk
    echo t >/proc/sysrq-trigger
    echo m >/proc/sysrq-trigger
    echo "served: no request of $counts has completed for 60 s; the server's threads wait in"
    for task in "/proc/$server/task"/*; do
        read -r calls <"$task/comm"
        while read -r _ call; do calls="$calls ${call%%+*}"; done <"$task/stack"
        echo "served: $calls"
    done
    echo b >/proc/sysrq-trigger
}

# pressed MIB MEMBER...: a file system on a file by FUSE, on a loop device, all of it in this little
# memory, is written with more than that.
pressed() {
    mib=$1
    shift
    insmod /modules/loop.ko || fail "no loop"
    create 5 "$@"
    server f "$@" --fuse /tmp/array
    left=500
    until [ -s /tmp/array ]; do
        [ $left -gt 0 ] || fail "no file: $(cat /tmp/f.out)"
        left=$((left - 1))
        usleep 20000
    done
    grep warning /tmp/f.out && fail "it is not protected from deadlocks"
    # As the unit for systemd has it.
    echo -900 >"/proc/$server/oom_score_adj"
    device=$(/bin/losetup --direct-io=on -f --show /tmp/array) || fail "no loop device"
    echo "direct-io $(cat "/sys/block/${device#/dev/}/loop/dio")"
    echo "memory $(awk '/MemTotal/ { print $2 }' /proc/meminfo)"
    made "$device" /mnt
    watched "$device" >/dev/console 2>&1 3>&- &
    watcher=$!
    before=$(anonymous)
    # Dirty pages of all files at the same time.
    writers=
    number=0
    while [ $number -lt 4 ]; do
        dd if="$pattern" of=/mnt/$number bs=1M count=$((mib / 4)) skip=$number 2>/dev/null &
        writers="$writers $!"
        number=$((number + 1))
    done
    for writer in $writers; do wait "$writer" || fail "a write failed"; done
    sync
    echo "grown $(($(anonymous) - before))"
    number=0
    while [ $number -lt 4 ]; do
        same /mnt/$number $((mib / 4)) $number
        number=$((number + 1))
    done
    kill "$watcher"
    whole "$device" /mnt
    losetup -d "$device"
    ended f
}

mkdir -p /mnt.$$
"$@"
