#!/bin/sh
# The first program of a guest, in its initramfs (see xtask/src/vm/guest.rs): mounts the host's root file system
# read-only, puts the guest's own file systems over it, and hands over to job.sh.
#
# From the kernel's command line: gputrace.run=DIRECTORY of this run, gputrace.files=DIRECTORY of the kernel's files.
export PATH=/bin
mount -t proc proc /proc
for word in $(cat /proc/cmdline); do
    case $word in
        gputrace.run=*) run=${word#*=} ;;
        gputrace.files=*) files=${word#*=} ;;
    esac
done
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in $(cat /modules/boot.list); do
    insmod "/modules/$module" || echo "cannot load $module"
done

# `loose` caches files, without which no library could be mapped and probed.
options=trans=virtio,version=9p2000.L,cache=loose,msize=524288,ro
mount -t 9p -o $options host /root || echo "cannot mount the host's files"
mount --bind /root /host

mount --move /dev /root/dev
mount --move /proc /root/proc
mount --move /sys /root/sys
for directory in tmp run var/tmp; do
    mount -t tmpfs -o mode=1777 tmpfs "/root/$directory"
done
# What lies in a directory that is the guest's own now, such as a checkout in /tmp, is put back.
while read -r path; do
    if [ ! -e "/root$path" ] && [ -d "/host$path" ]; then
        mkdir -p "/root$path"
        mount --bind "/host$path" "/root$path"
    fi
done <"/host$run/kept"
umount /host
exec switch_root /root /bin/sh "$run/job.sh"
