#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>
#include <sys/sendfile.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <fcntl.h>
static int fd,file,mode;
static void*run(void*x){ off_t o=0; long n=0,r; if(mode==0){ while(n<300000){ r=sendfile(fd,file,&o,300000-n); if(r<=0)break; n+=r;} }
 else if(mode==1){ int p[2]; pipe(p); while(n<300000){ loff_t off=n; r=splice(file,&off,p[1],0,60000,0); if(r<=0)break; long left=r; while(left>0){ long w=splice(p[0],0,fd,0,left,0); if(w<=0) return (void*)-1; left-=w; } n+=r; } }
 else { static char b[300000]; while(n<300000){ r=send(fd,b+n,300000-n,0); if(r<=0)break; n+=r; } }
 return (void*)n; }
int main(int c,char**v){ mode=atoi(v[1]); int port=atoi(v[2]); struct sockaddr_in a={.sin_family=AF_INET,.sin_port=htons(port),.sin_addr={htonl(INADDR_LOOPBACK)}};
 int l=socket(AF_INET,SOCK_STREAM,0),one=1; setsockopt(l,1,SO_REUSEADDR,&one,4); bind(l,(void*)&a,sizeof a); listen(l,5);
 pid_t p=fork(); if(!p){ int s=accept(l,0,0); char b[100]; for(int i=0;i<50;i++){ if(recv(s,b,10,MSG_WAITALL)!=10)exit(3); send(s,b,10,0);} static char big[70000]; long n=0,r; while((r=recv(s,big,sizeof big,0))>0)n+=r; printf("got %ld\n",n); exit(n!=300000);} close(l);
 fd=socket(AF_INET,SOCK_STREAM,0); connect(fd,(void*)&a,sizeof a); char b[10]={0}; for(int i=0;i<50;i++){ send(fd,b,10,0); recv(fd,b,10,MSG_WAITALL);} usleep(300000); for(int i=0;i<0;i++);
 char name[]="/tmp/me/st/fXXXXXX"; file=mkstemp(name); unlink(name); static char z[300000]; write(file,z,sizeof z); lseek(file,0,0);
 pthread_attr_t t; pthread_attr_init(&t); pthread_attr_setstacksize(&t,16384); pthread_t th; pthread_create(&th,&t,run,0); void*r; pthread_join(th,&r); printf("sent %ld\n",(long)r); shutdown(fd,1); int st; waitpid(p,&st,0); return st!=0; }
