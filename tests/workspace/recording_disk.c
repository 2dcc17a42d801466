/* A FUSE file system with one file, `disk`, that is stored in IMAGE. Every write and flush is appended to LOG:
   offset and length as 64-bit numbers, then the data; a flush has the offset ~0.

   Usage: recording_disk IMAGE LOG MOUNTPOINT */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int image, record;

static int append(uint64_t offset, const char *data, uint64_t size) {
    uint64_t head[2] = {offset, size};
    struct iovec parts[2] = {{head, sizeof head}, {(void *)data, size}};
    return writev(record, parts, 2) == (ssize_t)(sizeof head + size) ? 0 : -EIO;
}

static int get_attributes(const char *path, struct stat *found, struct fuse_file_info *info) {
    (void)info;
    memset(found, 0, sizeof *found);
    if (strcmp(path, "/") == 0) {
        found->st_mode = S_IFDIR | 0700;
        found->st_nlink = 2;
        return 0;
    }
    if (strcmp(path, "/disk") != 0)
        return -ENOENT;
    struct stat stored;
    if (fstat(image, &stored) != 0)
        return -errno;
    found->st_mode = S_IFREG | 0600;
    found->st_nlink = 1;
    found->st_size = stored.st_size;
    return 0;
}

static int read_file(const char *path, char *data, size_t size, off_t offset, struct fuse_file_info *info) {
    (void)path, (void)info;
    ssize_t done = pread(image, data, size, offset);
    return done < 0 ? -errno : (int)done;
}

static int write_file(const char *path, const char *data, size_t size, off_t offset, struct fuse_file_info *info) {
    (void)path, (void)info;
    if (pwrite(image, data, size, offset) != (ssize_t)size)
        return -EIO;
    int failed = append((uint64_t)offset, data, size);
    return failed ? failed : (int)size;
}

static int flush_file(const char *path, int is_data_only, struct fuse_file_info *info) {
    (void)path, (void)is_data_only, (void)info;
    return append(~(uint64_t)0, "", 0);
}

static const struct fuse_operations operations = {
    .getattr = get_attributes,
    .read = read_file,
    .write = write_file,
    .fsync = flush_file,
};

int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    image = open(arguments[1], O_RDWR);
    record = open(arguments[2], O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (image < 0 || record < 0)
        return 1;
    /* One thread, so that the record has the order of the writes. */
    char *own[] = {arguments[0], "-f", "-s", arguments[3], NULL};
    return fuse_main(4, own, &operations, NULL);
}
