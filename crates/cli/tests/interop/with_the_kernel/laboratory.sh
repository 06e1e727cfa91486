#!/bin/busybox sh
# What the laboratory's tests do in the guest: `laboratory FUNCTION WORD...`. The harness adds this
# file and raidlab itself to the guest's initramfs.
#
# Lines of output are `name value`; a record of raidlab's comes last, behind a line `json`.
export PATH=/bin:/laboratory
# Two lanes may be at it.
record=/tmp/laboratory.$$.json
said=/tmp/laboratory.$$.out

# A second scheduler to choose.
scheduler() {
    insmod /modules/mq-deadline.ko || {
        echo "the guest is an older one: sh scripts/guest/prepare"
        return 1
    }
}

# Settings of disks, by their index: what a run may turn must be what it was before.
settings() {
    index=0
    for disk in "$@"; do
        queue=/sys/block/${disk##*/}
        echo "$index.scheduler $(cat "$queue/queue/scheduler")"
        echo "$index.read_ahead_kb $(cat "$queue/queue/read_ahead_kb")"
        echo "$index.queue_depth $(cat "$queue/device/queue_depth")"
        index=$((index + 1))
    done
}

# The array that raidlab makes: it takes the first free number from 200 on.
made=/sys/block/md200

# The made array as it is.
array() {
    for file in level layout chunk_size raid_disks stripe_cache_size degraded sync_action; do
        [ ! -e "$made/md/$file" ] || echo "$file $(cat "$made/md/$file")"
    done
    echo "read_ahead_kb $(cat "$made/queue/read_ahead_kb")"
}

# What is left behind: arrays, volumes, files as devices, directories, mounts, and members that call
# themselves that.
left() {
    for found in /sys/block/md20* /sys/block/dm-* /sys/block/loop*/loop/backing_file /tmp/raidlab-*
    do
        [ ! -e "$found" ] || echo "there $found"
    done
    grep raidlab /proc/mounts
    for disk in "$@"; do
        # mdadm fails where there is no superblock.
        if mdadm --examine "$disk" >/dev/null 2>&1; then echo "superblock $disk"; fi
    done
}

# begin WORD...: raidlab in the background.
begin() {
    raidlab "$@" "--json=$record" >"$said" 2>&1 &
    pid=$!
}

# until_so COMMAND...: while raidlab runs, half a minute at most.
until_so() {
    tries=600
    until "$@"; do
        tries=$((tries - 1))
        if [ "$tries" -eq 0 ] || ! kill -0 "$pid" 2>/dev/null; then
            echo "not seen: $*"
            cat "$said"
            return 1
        fi
        usleep 50000
    done
}

written() {
    [ -e "$made/stat" ] && read -r _ _ _ _ _ _ sectors _ <"$made/stat" && [ "$sectors" -gt 0 ]
}

syncing() {
    [ -e "$made/md/sync_completed" ] && grep -q / "$made/md/sync_completed"
}

# Waits for raidlab.
ended() {
    status=0
    wait "$pid" || status=$?
    # Without the line that shows how far it is.
    tr '\r' '\n' <"$said" | grep '^raidlab: ' | sed 's/^/said /'
    echo "status $status"
}

record() {
    [ -s "$record" ] || { echo "no record:"; cat "$said"; return 1; }
    echo json
    cat "$record"
    rm -f "$record"
}

# during DISK+DISK WORD...: runs raidlab to its end, and looks while it writes to the array.
during() {
    disks=$1
    shift
    begin "$@"
    until_so written || return 1
    # shellcheck disable=SC2046 # a list
    settings $(echo "$disks" | tr + ' ')
    array
    ended
    record
}

# interrupted WHEN WORD...: Ctrl-C once that is so.
interrupted() {
    when=$1
    shift
    begin "$@"
    until_so "$when" || return 1
    kill -INT "$pid"
    ended
    rm -f "$record"
}

# ran WORD...: raidlab to its end, whatever that is.
ran() {
    begin "$@"
    ended
    rm -f "$record"
}

# raced DISK WORD...: raidlab to its end, with an mdadm that first lets another process take md200 for an
# array of this disk; and what that array is like then.
raced() {
    race=/tmp/race.$$
    mkdir -p $race
    cat >$race/mdadm <<END
#!/bin/busybox sh
if mkdir $race/lost 2>/dev/null; then
    /bin/mdadm --create /dev/md200 --run --force --level=1 --raid-devices=1 --metadata=1.2 $1
fi
exec /bin/mdadm "\$@"
END
    chmod +x $race/mdadm
    shift
    PATH=$race:$PATH
    ran "$@"
    cat $made/md/raid_disks $made/md/array_state
    mdadm --stop /dev/md200
}

# measured WORD...: raidlab to its end, and the record.
measured() {
    begin "$@"
    ended
    record
}

# diagnosed WORD...: what raidlab makes of an array.
diagnosed() {
    begin diagnose "$@"
    ended
    record
}

# A resync as slow as md makes it, and as fast.
slowly() {
    echo 1 >/proc/sys/dev/raid/speed_limit_min
    echo 1 >/proc/sys/dev/raid/speed_limit_max
}

quickly() {
    echo 1000000 >/proc/sys/dev/raid/speed_limit_min
    echo 10000000 >/proc/sys/dev/raid/speed_limit_max
}

# put ARRAY FILE VALUE: one of an array's own settings, or what it is to do.
put() {
    echo "$3" >"/sys/block/${1##*/}/md/$2"
}

# watched ARRAY: two reports while something is written.
watched() {
    busy=/tmp/busy.$$
    : >"$busy"
    while [ -e "$busy" ]; do
        dd if=/dev/zero of="$1" bs=64k count=64 oflag=direct conv=notrunc
    done >/dev/null 2>&1 &
    status=0
    raidlab watch --json --interval 0.5 --count 2 || status=$?
    rm "$busy"
    wait
    return $status
}

# random BLOCKS_KIB: writes fio's job file for small writes with many under way.
random() {
    printf '[w]\nrw=randwrite\nbs=%sk\niodepth=32\nioengine=libaio\ndirect=1\nsize=4m\n' "$1" \
        >/tmp/random.fio
}

# Drivers for file systems: the guest with `file-systems` in it has them.
drivers() {
    insmod /modules/dm-mod.ko && insmod /modules/loop.ko
}

# mounted DEVICE DIRECTORY: ext4 with default options. By its path: busybox has one, too.
mounted() {
    /bin/mke2fs -q -F -t ext4 "$1" && mkdir -p "$2" && mount -t ext4 "$1" "$2"
}

# volumes WORD...: LVM without a udev, and without the lane's port, descriptor 3.
volumes() {
    lvm "$@" --config 'activation { udev_sync=0 udev_rules=0 } backup { backup=0 archive=0 }' 3>&-
}

# volume DEVICE: a volume on all of it, /dev/mapper/there-data.
volume() {
    volumes pvcreate -y "$1" && volumes vgcreate there "$1" &&
        volumes lvcreate -y -Wn -l 100%FREE -n data there
}

no_volume() {
    volumes vgremove -f there && volumes pvremove -y "$1"
}

# mapped WORD...: raidlab to its end; and while it writes, on what its volume is, and from where on.
mapped() {
    begin "$@"
    until_so written || return 1
    volumes pvs --noheadings --units b --nosuffix -o pe_start,pv_name | sed 's/^ */volume /'
    ended
    record
}

"$@"
