// A library that behaves like NVML on a node with four GPUs:
//   0  tells everything
//   1  does not let this user see its power
//   2  is divided into two MIG devices (indices 0 and 2), and does not tell its utilisation
//   3  is lost
// Written from the NVML API reference. Built with -D…:
//   INIT=N         nvmlInit_v2 returns N
//   HANG="FILE"    nvmlInit_v2 does not return before somebody writes to the FIFO
//   WITHOUT_COUNT, WITHOUT_POWER   leave a function out
//   HIDDEN=N       this process may not use GPU N
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
	SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
	INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15,
};

#ifndef INIT
#define INIT SUCCESS
#endif
#ifndef HIDDEN
#define HIDDEN -1
#endif

struct gpu {
	const char *uuid, *name;
	int mig; // a MIG device
};

static struct gpu gpus[4] = {
	{"GPU-00000000-aaaa-0000-0000-000000000000", "Fake H200", 0},
	{"GPU-11111111-bbbb-0000-0000-000000000000", "Fake H200", 0},
	{"GPU-22222222-cccc-0000-0000-000000000000", "Fake A100", 0},
	{"GPU-33333333-dddd-0000-0000-000000000000", "Fake H200", 0},
};
static struct gpu migs[3] = {
	{"MIG-aaaaaaaa-0000-0000-0000-000000000000", "Fake A100 MIG 3g.20gb", 1},
	{0},
	{"MIG-bbbbbbbb-0000-0000-0000-000000000000", "Fake A100 MIG 3g.20gb", 1},
};

static int users;
int fake_shutdowns;

// what every call checks first
static int check(struct gpu *g) {
	if (users == 0)
		return UNINITIALIZED;
	return g == &gpus[3] ? GPU_IS_LOST : SUCCESS;
}

#define CHECK(g)                     \
	do {                         \
		int code = check(g); \
		if (code)            \
			return code; \
	} while (0)

int nvmlInit_v2(void) {
#ifdef HANG
	char c;
	int fifo = open(HANG, O_RDONLY);
	if (read(fifo, &c, 1) != 1)
		return UNINITIALIZED;
	close(fifo);
#endif
	if (INIT == SUCCESS)
		users++;
	return INIT;
}

int nvmlShutdown(void) {
	CHECK(0);
	users--;
	fake_shutdowns++;
	return SUCCESS;
}

static int text(const char *from, char *to, unsigned size) {
	if (strlen(from) + 1 > size)
		return INSUFFICIENT_SIZE;
	strcpy(to, from);
	return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *to, unsigned size) {
	CHECK(0);
	return text("999.1", to, size);
}

#ifndef WITHOUT_COUNT
int nvmlDeviceGetCount_v2(unsigned *count) {
	CHECK(0);
	*count = 4;
	return SUCCESS;
}
#endif

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **device) {
	CHECK(0);
	if (index >= 4)
		return INVALID_ARGUMENT;
	if ((int)index == HIDDEN)
		return NO_PERMISSION;
	*device = &gpus[index];
	return SUCCESS;
}

int nvmlDeviceGetUUID(struct gpu *g, char *to, unsigned size) {
	CHECK(g);
	return text(g->uuid, to, size);
}

int nvmlDeviceGetName(struct gpu *g, char *to, unsigned size) {
	CHECK(g);
	return text(g->name, to, size);
}

struct utilization {
	unsigned gpu, memory;
};

int nvmlDeviceGetUtilizationRates(struct gpu *g, struct utilization *to) {
	CHECK(g);
	if (g->mig || g == &gpus[2])
		return NOT_SUPPORTED;
	to->gpu = g == &gpus[0] ? 75 : 0;
	to->memory = 12;
	return SUCCESS;
}

struct memory {
	unsigned long long total, free, used;
};

int nvmlDeviceGetMemoryInfo(struct gpu *g, struct memory *to) {
	CHECK(g);
	to->total = g->mig ? 20ull << 30 : 141ull << 30;
	to->used = 5ull << 30;
	to->free = to->total - to->used;
	return SUCCESS;
}

#ifndef WITHOUT_POWER
int nvmlDeviceGetPowerUsage(struct gpu *g, unsigned *milliwatts) {
	CHECK(g);
	if (g == &gpus[1])
		return NO_PERMISSION;
	if (g->mig)
		return NOT_SUPPORTED;
	*milliwatts = 312500;
	return SUCCESS;
}
#endif

int nvmlDeviceGetTemperature(struct gpu *g, int sensor, unsigned *celsius) {
	CHECK(g);
	if (sensor != 0)
		return INVALID_ARGUMENT;
	*celsius = 41;
	return SUCCESS;
}

int nvmlDeviceGetPcieThroughput(struct gpu *g, int counter, unsigned *kilobytes) {
	CHECK(g);
	if (g->mig)
		return NOT_SUPPORTED;
	if (counter != 0 && counter != 1)
		return INVALID_ARGUMENT;
	*kilobytes = counter == 0 ? 2000 : 7000000; // sent, received
	return SUCCESS;
}

int nvmlDeviceGetMigMode(struct gpu *g, unsigned *current, unsigned *pending) {
	CHECK(g);
	if (g == &gpus[0])
		return NOT_SUPPORTED;
	*current = *pending = g == &gpus[2];
	return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(struct gpu *g, unsigned *count) {
	CHECK(g);
	*count = g == &gpus[2] ? 7 : 0;
	return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct gpu *g, unsigned index, struct gpu **mig) {
	CHECK(g);
	if (g != &gpus[2])
		return NOT_SUPPORTED;
	if (index >= 3 || !migs[index].uuid)
		return NOT_FOUND;
	*mig = &migs[index];
	return SUCCESS;
}
